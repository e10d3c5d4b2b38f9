"use strict";
if (document.querySelector("[data-wait]")) {
  setTimeout(() => location.reload(), 1500);
}
const copy = document.querySelector("[data-copy]");
if (copy && navigator.clipboard) {
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const said = document.getElementById("copied");
    try {
      const answer = await fetch(copy.dataset.copy, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      await navigator.clipboard.writeText(await answer.text());
      said.textContent = "copied";
    } catch {
      said.textContent = "not copied: take the file instead";
    }
  });
}
const box = document.getElementById("sql");
if (box) {
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) box.form.requestSubmit();
  });
}
