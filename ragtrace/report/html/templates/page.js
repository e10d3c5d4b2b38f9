"use strict";
const box = document.getElementById("filter");
if (box) {
  box.parentElement.hidden = false;
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const run of document.querySelectorAll("#results .run")) {
      const name = run.dataset.run.toLowerCase();
      let any = 0;
      for (const line of run.querySelectorAll("tbody tr[data-find]")) {
        const text = name + " " + line.dataset.find.toLowerCase();
        line.hidden = !words.every((word) => text.includes(word));
        any += line.hidden ? 0 : 1;
      }
      run.hidden = words.length > 0 && any === 0;
      shown += any;
    }
    document.getElementById("found").textContent = words.length ? shown + " lines" : "";
  });
}
