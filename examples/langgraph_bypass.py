"""A LangGraph graph whose mask is a node of its own, and an edge that does not lead through it.

pip install 'ragtrace-audit[langchain]' langgraph
python examples/langgraph_bypass.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TypedDict

from langchain_core.language_models import FakeListChatModel
from langgraph.graph import END, START, StateGraph

import ragtrace

database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database, capture="full")
model = FakeListChatModel(responses=["Ask Ann Lee, ann.lee@corp.com."])


class State(TypedDict):
    question: str
    urgent: bool
    answer: str


@ragtrace.observe(hook="response", name="mask-node")
def hide(text: str) -> str:
    return text.replace("ann.lee@corp.com", "[e-mail]")


def answer(state: State) -> dict[str, str]:
    return {"answer": model.invoke(state["question"]).text}


def mask(state: State) -> dict[str, str]:
    return {"answer": hide(state["answer"])}


def shortcut(state: State) -> str:
    return END if state["urgent"] else "mask"  # whoever wrote this wanted speed


graph = StateGraph(State)
graph.add_node("answer", answer)
graph.add_node("mask", mask)
graph.add_edge(START, "answer")
graph.add_conditional_edges("answer", shortcut, ["mask", END])
graph.add_edge("mask", END)
app = graph.compile()

for urgent in (False, True, False):
    print(f"urgent={urgent}:", app.invoke({"question": "Who signs?", "urgent": urgent})["answer"])

tracing.flush()
with ragtrace.open(database) as db:
    (row,) = ragtrace.verdicts(db)
    print(f"\n{row['defense']} at {row['hook']}: {row['verdict']}")
    print(row["evidence"])
