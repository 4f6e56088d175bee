"""The workers that the variable TF_CONFIG names, as TensorFlow documents it."""

import json
import re

from tfdml.checks import check

_WORKERS = ("chief", "worker")


def read_config(text):
    """The addresses of all workers, the chief's first, and the index of this one.

    Args:
        text: Value of TF_CONFIG.

    Raises:
        ValueError: If it is not JSON of a cluster of workers and a task of it.
    """
    form = (
        'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", "host:port"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = str(task["type"]), int(str(task["index"]))
        jobs = dict(cluster.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{form}. Received: {text!r} ({reason})") from None
    expectation = "TF_CONFIG must have workers, and at most one chief, alone"
    check(jobs and set(jobs) <= set(_WORKERS), expectation, jobs=sorted(jobs))
    lists = all(isinstance(addresses, list) for addresses in jobs.values())
    check(lists, "the jobs of TF_CONFIG must be lists of addresses", cluster=jobs)
    check(len(jobs.get("chief", [])) <= 1, expectation, jobs=jobs)
    expectation = "the task of TF_CONFIG must be one of its cluster"
    here = kind in jobs and 0 <= index < len(jobs[kind])
    check(here, expectation, task=task, cluster=jobs)
    addresses = [address for job in _WORKERS for address in jobs.get(job, [])]
    expectation = "the addresses of TF_CONFIG must be different texts HOST:PORT"
    found = [re.fullmatch(r".+:(\d{1,5})", str(address)) for address in addresses]
    are_addresses = all(each and 0 < int(each[1]) < 2**16 for each in found)
    check(are_addresses and len(set(addresses)) == len(addresses), expectation, cluster=jobs)
    return tuple(addresses), index + (len(jobs.get("chief", [])) if kind == "worker" else 0)
