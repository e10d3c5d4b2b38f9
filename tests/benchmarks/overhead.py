"""What instrumentation adds to one call of a pipeline, ours and others', side by side in one run.

A retriever, a prompt and a fake chat model, as a LangChain chain or a LlamaIndex query engine; 5 documents of 1,400
characters; batch exporters. Each round measures every instrumentation once, in random order, each in a process of its
own, so that they meet the same machine.

    python tests/benchmarks/overhead.py [--framework langchain] [--rounds 7] [--calls 600] [--capture full]

With ``--capture digest`` (or ``masked``) ragtrace is measured with its statistics and without. ``--processor`` counts
processor time of the process, all threads, which other load on the machine moves little. ``--fresh`` gives each call
documents that were never met before, ``--private`` such that are full of names and numbers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WARM = 200  # calls: more spans than one batch, so that each exporter has exported once before anything is timed
KINDS = ("none", "ragtrace", "no statistics", "openinference", "openllmetry")
PLAIN = "Plain words about quarterly planning and budgets. "
PRIVATE = "Amy Schumer <amy@corp.com> asks Bob Stone at 555-123-4567 about EMP-10293, due in March. "
ANSWER = "A short answer. " * 10
texts = itertools.repeat([(f"Document {i}. " + PLAIN * 40)[:1400] for i in range(5)])


def supply(fresh: bool, private: bool):
    """Five documents for each call."""
    plain = PRIVATE if private else PLAIN
    for call in itertools.count():
        yield [(f"Document {i} of {call * fresh}. " + plain * 40)[:1400] for i in range(5)]


def chain():
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda, RunnablePassthrough

    class Fixed(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun):
            return [Document(page_content=t, id=str(i), metadata={"score": 0.5}) for i, t in enumerate(next(texts))]

    class Echo(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "echo"

        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(content=ANSWER))])

    join = RunnableLambda(lambda ds: "\n\n".join(d.page_content for d in ds))
    prompt = ChatPromptTemplate.from_template("Use the context.\n{context}\n\nQuestion: {question}")
    return {"context": Fixed() | join, "question": RunnablePassthrough()} | prompt | Echo() | StrOutputParser()


def engine():
    from llama_index.core import get_response_synthesizer
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata
    from llama_index.core.llms import CustomLLM
    from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    class Fixed(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=TextNode(text=t, id_=str(i)), score=0.5) for i, t in enumerate(next(texts))]

    class Echo(CustomLLM):
        @property
        def metadata(self):
            return LLMMetadata(model_name="echo", is_chat_model=True, context_window=100_000)

        @llm_chat_callback()
        def chat(self, messages, **kwargs):
            return ChatResponse(message=ChatMessage(role="assistant", content=ANSWER))

        @llm_completion_callback()
        def complete(self, prompt, formatted=False, **kwargs):
            return CompletionResponse(text=ANSWER)

        @llm_completion_callback()
        def stream_complete(self, prompt, formatted=False, **kwargs):
            raise NotImplementedError

    return RetrieverQueryEngine(Fixed(), get_response_synthesizer(llm=Echo(), response_mode="simple_summarize"))


def asking(made, method: str):
    """Calls a method as it is then: one that was taken before its class is instrumented stays what it was."""
    return lambda question: getattr(made, method)(question)


PIPELINES = {"langchain": lambda: asking(chain(), "invoke"), "llama_index": lambda: asking(engine(), "query")}


class Nowhere:
    """An exporter that does what a fast back end does: nothing."""

    def export(self, spans):
        from opentelemetry.sdk.trace.export import SpanExportResult

        return SpanExportResult.SUCCESS

    def shutdown(self):
        pass

    def force_flush(self, timeout_millis=0):
        return True


def instrument(kind: str, framework: str, folder: str, capture: str) -> None:
    if kind == "none":
        return
    if kind in ("ragtrace", "no statistics"):
        import ragtrace

        ragtrace.setup(Path(folder) / "traces.duckdb", capture=capture, statistics=kind == "ragtrace")
        return
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    if framework == "langchain":
        if kind == "openinference":
            from openinference.instrumentation.langchain import LangChainInstrumentor as Instrumentor
        else:
            from opentelemetry.instrumentation.langchain import LangchainInstrumentor as Instrumentor
    elif kind == "openinference":
        from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as Instrumentor
    else:
        from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor as Instrumentor
    Instrumentor().instrument(tracer_provider=provider)


def measure(options: argparse.Namespace) -> None:
    global texts, ANSWER
    texts = supply(options.fresh, options.private)
    if options.private:
        ANSWER = PRIVATE * 4
    clock = time.process_time_ns if options.processor else time.perf_counter_ns
    with tempfile.TemporaryDirectory() as folder:
        ask = PIPELINES[options.framework]()
        instrument(options.one, options.framework, folder, options.capture)
        for i in range(WARM):
            ask(f"warm {i}")
        times = []
        for i in range(options.calls):
            start = clock()
            ask(f"question {i}")
            times.append((clock() - start) / 1e6)
        print(json.dumps(statistics.median(times)))
        from opentelemetry import trace

        shutdown = getattr(trace.get_tracer_provider(), "shutdown", None)
        if shutdown:
            shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=600)
    parser.add_argument("--framework", choices=PIPELINES, default="langchain")
    parser.add_argument("--capture", choices=("full", "masked", "digest", "none"), default="full")
    for flag in ("--processor", "--fresh", "--private"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options)
        return
    kinds = [kind for kind in KINDS if kind != "no statistics" or options.capture in ("masked", "digest")]
    medians: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in random.sample(kinds, len(kinds)):
            command = [sys.executable, __file__, *sys.argv[1:], "--one", kind]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                sys.exit(run.stderr)
            medians[kind].append(float(run.stdout.splitlines()[-1]))
    base = medians["none"]
    added = {kind: [m - b for m, b in zip(medians[kind], base, strict=True)] for kind in kinds[1:]}
    print(
        f"{options.framework}, capture={options.capture}: median ms {'of processor time ' * options.processor}a call, "
        f"{options.rounds} rounds of {options.calls} calls; "
        f"without: {statistics.median(base):.2f}"
    )
    for kind, values in added.items():
        shares = [v / o for v, o in zip(values, added["openinference"], strict=True)]
        print(
            f"{kind:14} adds {statistics.median(values):5.2f} ms  [{min(values):.2f}, {max(values):.2f}]"
            f"   of OpenInference's: {statistics.median(shares):.2f}  [{min(shares):.2f}, {max(shares):.2f}]"
        )


if __name__ == "__main__":
    main()
