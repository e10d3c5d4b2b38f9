"""The server process: run as a script by :mod:`ragtrace.embedded.serving`; imports nothing of ours.

Prints the address it listens on, then lives until its standard input ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def parameters(options: dict[str, Any]) -> Any:
    """llama.cpp's settings: quiet, private to this user's requests, the same answer for the same prompt."""
    from xllamacpp import CommonParams

    params = CommonParams()
    params.model.path = options["path"]
    params.model_alias = {options["alias"]}
    params.n_ctx = options["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.sampling.temp = 0.0
    params.n_predict = 512  # where a request names no limit: small models do not always find an end
    params.n_parallel = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0  # would keep up to 8 GB of old prompts
    params.n_ubatch = 512
    params.verbosity = -1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.ui = params.endpoint_slots = False  # /slots shows prompts to anybody on this machine
    return params


def main() -> None:
    from xllamacpp import Server

    server = Server(parameters(json.loads(sys.argv[1])))
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # requests under way are cut off, not waited for


if __name__ == "__main__":
    main()
