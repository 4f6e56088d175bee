"use strict";

const QUERIES_AT_ONCE = 8;
const CLASSES_AT_ONCE = 100;
const CONFUSIONS = 30;
const NEAR = 24; // pixels within which a pointer touches a point of the map
const FINEST = ["map@r", "map", "r_precision", "mrr"]; // finer than a recall of 0 or 1

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

function bytes(text) {
  const characters = atob(text);
  const array = new Uint8Array(characters.length);
  for (let i = 0; i < array.length; i++) array[i] = characters.charCodeAt(i);
  return array;
}

const integers = (text) => new Uint32Array(bytes(text).buffer);
const floats = (text) => new Float32Array(bytes(text).buffer);
const mapValues = (object, change) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));

const names = data.classes;
const ids = integers(data.ids); // class of each row
const sizes = new Uint32Array(names.length); // images of each class
ids.forEach((id) => sizes[id]++);
const neighbours = integers(data.neighbours); // `found` for each row, the nearest first
const distances = floats(data.distances);
const values = mapValues(data.values, floats); // of each query
const means = mapValues(values, meansOfClasses);
const finest = FINEST.find((name) => name in values) ?? Object.keys(values)[0];
const found = neighbours.length / ids.length;

function meansOfClasses(value) {
  const sums = new Float64Array(names.length);
  value.forEach((number, row) => (sums[ids[row]] += number));
  return sums.map((sum, id) => sum / sizes[id]);
}

const isAlone = (row) => sizes[ids[row]] === 1;
const nearest = (row) => neighbours[row * found];
const nameOf = (row) => (data.images ? data.images[row] : `image ${row}`);
const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Pictures: cells of sheets, each sheet decoded when one of its pictures is first shown.

const sheets = [];

function sheetUrl(number) {
  sheets[number] ??= URL.createObjectURL(
    new Blob([bytes(data.sheets.images[number])], { type: "image/webp" }),
  );
  return sheets[number];
}

function picture(row) {
  const { columns, rows } = data.sheets;
  const number = Math.floor(row / (columns * rows));
  const cells = Math.min(columns * rows, ids.length - number * columns * rows);
  const lines = Math.ceil(cells / columns);
  const place = row % (columns * rows);
  const percent = (cell, of) => `${of > 1 ? (100 * cell) / (of - 1) : 0}%`;
  const element = make("span", { className: "picture" });
  element.style.backgroundImage = `url(${sheetUrl(number)})`;
  element.style.backgroundSize = `${100 * columns}% ${100 * lines}%`;
  element.style.backgroundPosition =
    `${percent(place % columns, columns)} ${percent(Math.floor(place / columns), lines)}`;
  return element;
}

function card(row, { query = null, distance = null } = {}) {
  const name = names[ids[row]];
  const element = make("a", { className: "card", href: `#image-${row}`, title: `${name}, ${nameOf(row)}` }, picture(row));
  let caption = `${data.images ? nameOf(row) : `Image ${row}`}, ${name}`;
  if (query !== null) {
    const isHit = ids[row] === ids[query];
    const number = distance.toPrecision(3);
    element.classList.add(isHit ? "hit" : "miss");
    element.append(
      make("span", { className: "mark" }, `${isHit ? "✓" : "✗"} ${number}`),
      make("span", { className: "name" }, isHit ? "" : name),
    );
    caption = `${isHit ? "Hit" : "Miss"}: ${caption}, distance ${number}`;
  }
  if (data.images) {
    element.append(make("span", { className: "name file" }, nameOf(row).split("/").pop()));
  }
  element.ariaLabel = caption;
  return element;
}

// Queries, selected by the fragment of the address: #worst, #image-7, #class-3, #confused-3-5.

const gallery = { order: "worst", measure: finest, classes: null, only: null, caption: "", shown: 0 };
let draw = data.seed;

function shuffled(rows) {
  let state = draw;
  const random = () => {
    // Mulberry32: the same seed gives the same queries.
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const order = [...rows];
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function ordered(rows) {
  if (gallery.order === "random") return shuffled(rows);
  const value = values[gallery.measure];
  const sign = gallery.order === "best" ? -1 : 1;
  const first = (row) => (found ? distances[row * found] : 0);
  return rows.sort((a, b) => sign * (value[a] - value[b]) || first(a) - first(b) || a - b);
}

function rowsToShow() {
  if (gallery.only) return gallery.only;
  const rows = Array.from(ids.keys());
  const wanted = gallery.classes;
  return ordered(rows.filter((row) => (wanted ? wanted.has(ids[row]) : !isAlone(row))));
}

function queryBlock(row) {
  const measures = gallery.only ? Object.keys(values) : [gallery.measure];
  const about = measures.map((name) => `${name} ${values[name][row].toFixed(3)}`);
  const list = make("ol", { className: "found" });
  for (let i = row * found; i < (row + 1) * found; i++) {
    list.append(make("li", {}, card(neighbours[i], { query: row, distance: distances[i] })));
  }
  const asked = make(
    "div",
    { className: "asked" },
    card(row),
    make("h3", {}, make("a", { href: `#class-${ids[row]}` }, names[ids[row]])),
    make("p", {}, `${nameOf(row)}${isAlone(row) ? ", the only image of its class" : ""}`),
    make("p", {}, about.join(" · ")),
  );
  return make("article", { className: "query" }, asked, list);
}

let rows = [];

function showMoreQueries() {
  const next = rows.slice(gallery.shown, gallery.shown + QUERIES_AT_ONCE);
  byId("queries").append(...next.map(queryBlock));
  gallery.shown += next.length;
  byId("more-queries").hidden = gallery.shown >= rows.length;
}

function showQueries() {
  rows = rowsToShow();
  gallery.shown = 0;
  byId("queries").replaceChildren();
  byId("queries").classList.toggle("single", rows.length === 1);
  const of = gallery.classes ? ` of ${count(gallery.classes.size, "class", "classes")}` : "";
  const order = gallery.order === "random" ? "in random order" : `the ${gallery.order} first`;
  byId("gallery-status").textContent =
    gallery.caption || `${count(rows.length, "query", "queries")}${of}, ${order}.`;
  for (const tab of document.getElementsByName("order")) {
    tab.checked = !gallery.only && tab.value === gallery.order;
  }
  showMoreQueries();
}

function show(change) {
  Object.assign(gallery, { only: null, caption: "" }, change);
  showQueries();
}

function showImage(row) {
  show({ only: [row], caption: `${data.images ? nameOf(row) : `Image ${row}`} as the query.` });
}

function showClass(id) {
  byId("wanted").value = names[id];
  show({ classes: new Set([id]) });
}

function confusedRows(id, other) {
  const isOne = (row) => ids[row] === id && ids[nearest(row)] === other;
  return Array.from(ids.keys()).filter(isOne);
}

function showConfused(id, other) {
  const only = confusedRows(id, other);
  const caption = `${count(only.length, "query", "queries")} of ${names[id]} with ${names[other]} nearest.`;
  show({ only, caption });
}

function follow() {
  const route = location.hash.match(/^#(worst|best|random|image|class|confused)(?:-(\d+))?(?:-(\d+))?$/);
  if (!route) return;
  const [kind, one, other] = [route[1], Number(route[2]), Number(route[3])];
  const isId = (id) => id < names.length;
  if (kind === "image" && one < ids.length) showImage(one);
  else if (kind === "class" && isId(one)) showClass(one);
  else if (kind === "confused" && isId(one) && isId(other)) showConfused(one, other);
  else if (!route[2]) return show({ order: kind });
  else return;
  byId("gallery").scrollIntoView();
}

function chooseClasses(text) {
  const wanted = text.trim().toLowerCase();
  const matches = (test) => names.flatMap((name, id) => (test(name.toLowerCase()) ? [id] : []));
  const exact = matches((name) => name === wanted);
  const chosen = exact.length ? exact : matches((name) => name.includes(wanted));
  leaveRoute({ classes: wanted ? new Set(chosen) : null });
}

function leaveRoute(change) {
  history.replaceState(null, "", `#${gallery.order}`);
  show(change);
}

function chooseOrder(order) {
  if (order === "random" && gallery.order === order && !gallery.only) draw++;
  if (location.hash === `#${order}`) show({ order });
  else location.hash = order;
}

function startGallery() {
  const { width, height } = data.sheets;
  document.documentElement.style.setProperty("--aspect", `${width} / ${height}`);
  const options = Object.keys(values).map((name) => make("option", { value: name }, name));
  byId("measure").append(...options);
  byId("measure").value = gallery.measure;
  byId("measure").onchange = (event) => leaveRoute({ measure: event.target.value });
  byId("names").append(...names.map((name) => make("option", { value: name })));
  byId("wanted").oninput = (event) => chooseClasses(event.target.value);
  byId("more-queries").onclick = showMoreQueries;
  for (const tab of document.getElementsByName("order")) {
    tab.onclick = () => chooseOrder(tab.value);
  }
  addEventListener("hashchange", follow);
  showQueries();
  follow();
}

// Confusions.

/** The commonest [class, class of the nearest neighbour, queries], the most queries first. */
function confusions() {
  const counts = new Map();
  for (const row of found ? ids.keys() : []) {
    const pair = ids[row] * names.length + ids[nearest(row)];
    if (ids[row] !== ids[nearest(row)]) counts.set(pair, (counts.get(pair) ?? 0) + 1);
  }
  const pairs = [...counts].sort(([a, one], [b, other]) => other - one || a - b);
  return pairs
    .slice(0, CONFUSIONS)
    .map(([pair, count]) => [Math.floor(pair / names.length), pair % names.length, count]);
}

function startConfusions() {
  const pairs = confusions();
  byId("pairs").append(
    ...pairs.map(([id, other, queries]) => {
      const examples = confusedRows(id, other).slice(0, 3);
      return make(
        "li",
        {},
        make("a", { href: `#confused-${id}-${other}` }, `${names[id]} → ${names[other]}`),
        make("div", { className: "count" }, `${queries} of ${count(sizes[id], "query", "queries")}`),
        make(
          "div",
          { className: "examples" },
          ...examples.map((row) => make("div", {}, card(row), card(nearest(row)))),
        ),
      );
    }),
  );
  if (!pairs.length) {
    byId("pairs").append(make("li", {}, "None: no query has a nearest neighbour of another class."));
  }
}

// Table of the classes.

const columns = [
  { name: "class", of: (id) => names[id], text: (id) => names[id] },
  { name: "images", of: (id) => sizes[id], text: (id) => sizes[id].toLocaleString("en") },
  ...Object.entries(means).map(([name, mean]) => ({
    name,
    of: (id) => mean[id],
    text: (id) => mean[id].toFixed(4),
  })),
];
const table = { column: columns[0], sign: 1, shown: CLASSES_AT_ONCE };

function showTable() {
  const { column, sign, shown } = table;
  const wanted = byId("table-filter").value.trim().toLowerCase();
  const compare = (a, b) =>
    typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
  const kept = Array.from(names.keys())
    .filter((id) => names[id].toLowerCase().includes(wanted))
    .sort((a, b) => sign * compare(column.of(a), column.of(b)) || a - b);
  const link = (id) => make("a", { href: `#class-${id}` }, names[id]);
  byId("table").tBodies[0].replaceChildren(
    ...kept.slice(0, shown).map((id) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, link(id)),
        ...columns.slice(1).map((column) => make("td", {}, column.text(id))),
      ),
    ),
  );
  columns.forEach(({ name }, i) => {
    const header = byId("table").tHead.rows[0].cells[i];
    if (name !== column.name) header.removeAttribute("aria-sort");
    else header.ariaSort = sign > 0 ? "ascending" : "descending";
  });
  byId("table-status").textContent = count(kept.length, "class", "classes");
  byId("more-classes").hidden = kept.length <= shown;
}

function sortBy(column) {
  const sign = table.column === column ? -table.sign : 1;
  Object.assign(table, { column, sign });
  showTable();
}

function startTable() {
  const headers = columns.map((column) =>
    make(
      "th",
      { scope: "col" },
      make("button", { type: "button", onclick: () => sortBy(column) }, column.name),
    ),
  );
  byId("table").tHead.rows[0].append(...headers);
  byId("table-filter").oninput = showTable;
  byId("more-classes").onclick = () => {
    table.shown += CLASSES_AT_ONCE;
    showTable();
  };
  showTable();
}

// Map.

function startMap() {
  const drawn = integers(data.map.rows);
  byId("map").hidden = !drawn.length;
  document.querySelector('nav a[href="#map"]').hidden = !drawn.length;
  if (!drawn.length) return;
  const canvas = byId("plane");
  const spot = byId("spot");
  const context = canvas.getContext("2d");
  const places = Float32Array.from(
    new Uint16Array(bytes(data.map.places).buffer),
    (place) => 0.04 + (0.92 * place) / 65535,
  );
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const view = { scale: 1, x: 0, y: 0 }; // a place is drawn at scale * size * place + (x, y)
  const pointers = new Map();
  let touched = null; // number of a point
  let moved = 0; // pixels since a pointer went down

  const size = () => canvas.clientWidth;
  const at = (point) => [
    view.scale * size() * places[2 * point] + view.x,
    view.scale * size() * places[2 * point + 1] + view.y,
  ];

  function paint() {
    const ratio = devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(size() * ratio);
    context.scale(ratio, ratio);
    const radius = Math.min(6, 2.5 * Math.sqrt(view.scale));
    const lit = touched === null ? null : ids[drawn[touched]];
    const light = dark.matches ? 65 : 42;
    const paintPoint = (point, id) => {
      context.fillStyle = `hsl(${(id * 137.508) % 360} 60% ${light}%)`;
      context.beginPath();
      context.arc(...at(point), id === lit ? radius + 2 : radius, 0, 2 * Math.PI);
      context.fill();
    };
    context.globalAlpha = lit === null ? 0.85 : 0.2;
    drawn.forEach((row, point) => ids[row] !== lit && paintPoint(point, ids[row]));
    context.globalAlpha = 1;
    drawn.forEach((row, point) => ids[row] === lit && paintPoint(point, lit));
  }

  function touch(point, isFixed) {
    touched = point;
    spot.hidden = point === null;
    spot.classList.toggle("fixed", isFixed);
    if (point !== null) {
      const [x, y] = at(point);
      const row = drawn[point];
      spot.replaceChildren(card(row), make("div", { className: "card" }, names[ids[row]]));
      const left = x > size() / 2 ? x - spot.offsetWidth - 10 : x + 10;
      const top = y > size() / 2 ? y - spot.offsetHeight - 10 : y + 10;
      spot.style.left = `${Math.max(0, left)}px`;
      spot.style.top = `${Math.max(0, top)}px`;
    }
    paint();
  }

  function nearestPoint(x, y) {
    let best = null;
    let least = NEAR ** 2;
    for (let point = 0; point < drawn.length; point++) {
      const [left, top] = at(point);
      const squared = (left - x) ** 2 + (top - y) ** 2;
      if (squared < least) [best, least] = [point, squared];
    }
    return best;
  }

  function place(change) {
    Object.assign(view, change);
    const most = size() * (1 - view.scale); // keeps the map over the canvas
    view.x = Math.min(0, Math.max(most, view.x));
    view.y = Math.min(0, Math.max(most, view.y));
    canvas.classList.toggle("zoomed", view.scale > 1);
    touch(null, false);
  }

  function zoom(factor, x = size() / 2, y = size() / 2) {
    const scale = Math.min(40, Math.max(1, view.scale * factor));
    const change = scale / view.scale;
    place({ scale, x: x - change * (x - view.x), y: y - change * (y - view.y) });
  }

  const middle = () => {
    const all = [...pointers.values()];
    const mean = (key) => all.reduce((sum, pointer) => sum + pointer[key], 0) / all.length;
    const [x, y] = [mean("x"), mean("y")];
    return { x, y, spread: Math.hypot(all[0].x - x, all[0].y - y) };
  };

  canvas.onpointerdown = (event) => {
    if (!pointers.size) moved = 0;
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    const to = { x: event.offsetX, y: event.offsetY };
    if (!pointers.has(event.pointerId)) {
      const point = nearestPoint(to.x, to.y);
      if (point !== touched) touch(point, false);
      return;
    }
    const before = middle();
    pointers.set(event.pointerId, to);
    const after = middle();
    moved += Math.hypot(after.x - before.x, after.y - before.y) + Math.abs(after.spread - before.spread);
    if (moved < 5) return;
    place({ x: view.x + after.x - before.x, y: view.y + after.y - before.y });
    if (pointers.size > 1) zoom(after.spread / (before.spread || 1), after.x, after.y);
  };
  canvas.onpointerup = (event) => {
    const isAlone = pointers.size === 1;
    pointers.delete(event.pointerId);
    if (!isAlone || moved >= 5) return;
    const point = nearestPoint(event.offsetX, event.offsetY);
    if (event.pointerType === "mouse" && point !== null) location.hash = `image-${drawn[point]}`;
    else touch(point, true);
  };
  canvas.onpointercancel = (event) => pointers.delete(event.pointerId);
  canvas.onpointerleave = (event) => event.pointerType === "mouse" && touch(null, false);
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
  const step = 60;
  const keys = {
    "+": () => zoom(1.5),
    "=": () => zoom(1.5),
    "-": () => zoom(1 / 1.5),
    0: () => place({ scale: 1 }),
    ArrowLeft: () => place({ x: view.x + step }),
    ArrowRight: () => place({ x: view.x - step }),
    ArrowUp: () => place({ y: view.y + step }),
    ArrowDown: () => place({ y: view.y - step }),
  };
  canvas.onkeydown = (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  byId("zoom-in").onclick = keys["+"];
  byId("zoom-out").onclick = keys["-"];
  byId("zoom-reset").onclick = keys[0];
  dark.onchange = paint;
  new ResizeObserver(() => place({})).observe(canvas);
  const part =
    drawn.length < ids.length
      ? `A random sample of ${drawn.length.toLocaleString("en")} of ${count(ids.length, "image")}`
      : count(ids.length, "image");
  byId("map-caption").textContent =
    `${part} by t-SNE, coloured by class: nearby images have similar embeddings. Point at or tap ` +
    "one to see it and its class. Drag to move; zoom with the buttons, by pinching, or with the " +
    "wheel after a click or with Ctrl.";
}

startGallery();
startConfusions();
startTable();
startMap();
