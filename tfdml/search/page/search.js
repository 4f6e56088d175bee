"use strict";

const MOST = 200; // images that an answer may have
const POLL = 1000; // milliseconds between looks at a refresh

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const uploads = []; // pictures sent, to go back to
let status = null;
let shown = 0; // number of the latest query: answers to earlier ones are dropped
let count = 24;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The search does not answer. Is it still running?");
  }
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Not from the search itself, but for example from a proxy.
  }
  if (!response.ok) throw new Error(body.error || `The search answered ${response.status}.`);
  return body;
}

function showError(error) {
  byId("error").textContent = error ? error.message : "";
  byId("error").hidden = !error;
}

/* Status and refresh */

function showStatus() {
  const { images, folder, model, reranked, exact, refreshing, failure, left_out: files } = status;
  const ranking = { similarity: `the learned similarity of the ${reranked} nearest`, cosine: "cosine similarity", distance: "Euclidean distance" };
  byId("about").textContent =
    `${number(images)} images of “${folder}”, by the model ${model} and ` +
    `${ranking[status.ranked_by]}${exact ? "" : ", approximately"}.`;
  const types = status.types.map((type) => type.split("/")[1].toUpperCase()).join(", ");
  byId("limits").textContent = `${types}, up to ${status.upload_bytes / 1e6} MB. It is not kept${status.uploads ? " unless you add it" : ""}.`;
  byId("file").accept = status.types.join(",");
  byId("refresh").disabled = Boolean(refreshing);
  byId("refreshed").textContent = refreshing
    ? `Refreshing: ${number(refreshing.done)} of ${number(refreshing.total)} new images`
    : failure
      ? `The refresh failed: ${failure}`
      : "";
  const list = byId("left-out");
  list.hidden = !files.length;
  list.querySelector("summary").textContent =
    `${number(files.length)} ${files.length === 1 ? "file was" : "files were"} ignored`;
  list
    .querySelector("ul")
    .replaceChildren(...files.map(({ name, cause }) => element("li", {}, `${name}: ${cause}`)));
}

async function look() {
  status = await ask("api/status");
  showStatus();
}

async function refresh() {
  try {
    showError(null);
    const before = status.images;
    status = await ask("api/refresh", { method: "POST" });
    showStatus();
    while (status.refreshing) {
      await new Promise((resolve) => setTimeout(resolve, POLL));
      await look();
    }
    if (!status.failure) {
      byId("refreshed").textContent =
        before === status.images ? "Up to date." : `${number(before)} images before, ${number(status.images)} now.`;
    }
    if (!location.hash) await route();
  } catch (error) {
    showError(error);
  }
}

/* Questions */

function choose(files) {
  const file = [...files].find(({ type }) => !type || type.startsWith("image/"));
  if (!file) {
    showError(new Error("No image file was given."));
  } else if (status && file.size > status.upload_bytes) {
    showError(
      new Error(`The picture must be a file of at most ${status.upload_bytes / 1e6} MB. This one has ${(file.size / 1e6).toFixed(1)} MB.`),
    );
  } else {
    uploads.push({ file, url: URL.createObjectURL(file) });
    location.hash = `picture-${uploads.length - 1}`;
  }
}

/* The picture is added to the collection, or the image removed from it. */
async function change(path, options) {
  try {
    const changed = await ask(path, options);
    await look();
    location.hash = options.method === "POST" ? `image-${changed.id}` : "";
  } catch (error) {
    showError(error);
  }
}

const asked = () => `k=${count}&where=${encodeURIComponent(byId("where").value)}`;

async function answerTo(hash) {
  const [, kind, key] = /^#(picture|image)-(\d+)$/.exec(hash) || [];
  if (kind === "image") {
    const answer = await ask(`api/similar/${key}?${asked()}`);
    const { image, thumbnail, folder, name } = answer.query;
    const change = ["Remove from the collection", `api/images/${key}`, { method: "DELETE" }];
    return { answer, query: { picture: thumbnail, whole: image, folder, name, change } };
  }
  if (kind === "picture" && uploads[key]) {
    const { file, url } = uploads[key];
    const options = { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } };
    const answer = await ask(`api/search?${asked()}`, options);
    const change = ["Add to the collection", "api/images", options];
    return { answer, query: { picture: url, whole: url, folder: "", name: file.name, change } };
  }
  return null;
}

async function route() {
  const question = ++shown;
  byId("results").setAttribute("aria-busy", "true");
  try {
    const answered = await answerTo(location.hash);
    const sample = answered ? null : (await ask("api/sample?k=24")).images;
    if (question !== shown) return;
    showError(null);
    if (answered) {
      showQuery(answered.query);
      showDecision(answered.answer.decision);
      showResults(answered.answer);
    } else {
      showQuery(null);
      showDecision(null);
      showSample(sample);
    }
  } catch (error) {
    if (question !== shown) return;
    showError(error);
    showQuery(null);
    showDecision(null);
    byId("results").replaceChildren();
    byId("results-title").textContent = "No answer";
    byId("status").textContent = "";
    byId("more").hidden = true;
  }
  byId("results").setAttribute("aria-busy", "false");
}

/* Answers */

function showQuery(query) {
  byId("query").hidden = !query;
  if (!query) return;
  byId("query-picture").src = query.picture;
  byId("query-picture").alt = `The picture searched by: ${query.name}`;
  byId("query-link").href = query.whole;
  byId("query-folder").replaceChildren(...breakable(query.folder));
  byId("query-folder").hidden = !query.folder;
  byId("query-name").replaceChildren(...breakable(fileName(query.name)));
  const [words, path, options] = query.change;
  byId("change").textContent = words;
  byId("change").hidden = !status.uploads;
  byId("change").onclick = () => change(path, options);
}

function showDecision(decision) {
  byId("decision").hidden = !decision;
  if (!decision) return;
  const { known, class: name, probability, distance, threshold, method } = decision;
  const reason = `${formatted(distance)} by the rule “${method}”, ${known ? "below" : "not below"} ${formatted(threshold)}`;
  byId("decision").textContent = known
    ? `${name}: probability ${formatted(probability)}. Its distance is ${reason}.`
    : `None of these. The nearest class is ${name}, probability ${formatted(probability)}: its distance is ${reason}.`;
}

function showResults({ results, ranked_by: kind, seconds }) {
  const asked = byId("results-title");
  asked.textContent = results.length ? `The ${results.length} nearest images` : "Nothing to find yet";
  const parts = ["embedding", "search", "reranking"].filter((part) => part in seconds);
  const each = parts.map((part) => `${part} ${milliseconds(seconds[part])}`).join(", ");
  const bars = kind === "cosine" ? "" : " Bars reach from the last image shown to the best.";
  byId("status").textContent = results.length
    ? `${milliseconds(seconds.total)} (${each}).${bars}`
    : "The folder holds no image that can be searched.";
  const share = shareOf(results, kind);
  byId("results").replaceChildren(
    ...results.map((image, place) => card(image, scoreOf(image, kind, share(image), place))),
  );
  byId("more").hidden = results.length < count || count >= MOST || results.length >= status.images - 1;
  asked.focus({ preventScroll: true });
}

function showSample(images) {
  byId("results-title").textContent = images.length ? "Or start from one of these" : "The folder is empty";
  byId("status").textContent = images.length
    ? `${images.length} of ${number(status.images)} images, drawn at random. Choose one to find what resembles it.`
    : "Put images into it and refresh the index.";
  byId("results").replaceChildren(...images.map((image) => card(image, null)));
  byId("more").hidden = true;
}

function card(image, score) {
  const picture = element("img", { src: image.thumbnail, alt: "", loading: "lazy", decoding: "async" });
  picture.addEventListener("error", () => picture.classList.add("broken"));
  const link = element("a", { className: "card", href: `#image-${image.id}` }, picture);
  if (score) link.append(score.text, score.bar);
  if (image.folder) link.append(element("span", { className: "folder" }, ...breakable(image.folder)));
  link.title = image.name;
  link.setAttribute("aria-label", `${score ? `${score.words}: ` : ""}${image.name}. Search by it`);
  const properties = { className: "name", href: image.image, target: "_blank", rel: "noopener" };
  const whole = element("a", properties, ...breakable(fileName(image.name)));
  whole.title = `Open the image, ${image.width} × ${image.height} pixels`;
  return element("li", {}, link, whole);
}

function scoreOf(image, kind, share, place) {
  const main = formatted(image[kind]);
  const other = kind === "similarity" ? ("cosine" in image ? "cosine" : "distance") : null;
  const text = element("span", { className: "score" }, `${kind} ${main} `);
  if (other) text.append(element("small", {}, `${other} ${formatted(image[other])}`));
  const filled = element("span");
  filled.style.width = `${Math.round(100 * share)}%`;
  const bar = element("span", { className: "bar" }, filled);
  return { text, bar, words: `Number ${place + 1}, ${kind} ${main}` };
}

/* The cosine itself; for other scores, the position in the range shown. */
function shareOf(results, kind) {
  if (kind === "cosine") return (image) => Math.max(0, Math.min(1, image.cosine));
  const scores = results.map((image) => image[kind]);
  const best = scores[0];
  const range = scores.at(-1) - best;
  return (image) => (range ? 1 - 0.9 * ((image[kind] - best) / range) : 1);
}

const formatted = (score) => (Math.abs(score) < 1 ? score.toFixed(3) : score.toPrecision(4));
const milliseconds = (seconds) => `${(1000 * seconds).toPrecision(seconds < 0.01 ? 2 : 3)} ms`;
/* The text with places for line breaks, as file names have no spaces. */
const breakable = (text) => text.split(/(?<=[_.-])/).flatMap((part) => [part, element("wbr")]);
const fileName = (name) => name.slice(name.lastIndexOf("/") + 1);

/* Events */

function startDropping() {
  const ours = (event) => event.dataTransfer && event.dataTransfer.types.length > 0;
  addEventListener("dragover", (event) => {
    if (!ours(event)) return;
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    choose(event.dataTransfer.files);
  });
}

async function start() {
  byId("file").addEventListener("change", (event) => {
    choose(event.target.files);
    event.target.value = ""; // the same picture may be chosen again
  });
  addEventListener("paste", (event) => choose(event.clipboardData.files));
  startDropping();
  byId("refresh").addEventListener("click", refresh);
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    route();
  });
  byId("more").addEventListener("click", () => {
    count = Math.min(MOST, 2 * count);
    route();
  });
  addEventListener("hashchange", () => {
    count = status ? status.neighbours : count;
    scrollTo({ top: 0 });
    route();
  });
  try {
    await look();
    count = status.neighbours;
    await route();
  } catch (error) {
    showError(error);
  }
}

start();
