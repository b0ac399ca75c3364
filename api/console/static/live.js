"use strict";
// Polls for decisions once a second while the page is visible, and keeps the newest few.
(() => {
  const rows = document.getElementById("live-rows"), filters = document.getElementById("live-filters");
  const state = document.getElementById("live-state"), pause = document.getElementById("live-pause");
  const away = document.getElementById("away"), leftOut = document.getElementById("live-left-out");
  const reasons = [...document.getElementById("reason").options];
  const most = Number(rows.dataset.most);
  // Equal decisions share a row, by the texts in it.
  const shown = new Map();
  let after = "", missed = 0, generation = 0;

  const showState = (kind, text) => {
    state.className = `state ${kind}`;
    state.textContent = text;
  };

  const inWords = (name) => reasons.find((each) => each.value === name)?.text || name;

  const newRow = (texts, isGood) => {
    const row = document.getElementById("live-row").content.firstElementChild.cloneNode(true);
    texts.forEach((text, place) => { row.querySelectorAll("[data-text]")[place].textContent = text; });
    row.querySelector(".state").classList.toggle("good", isGood);
    return row;
  };

  const add = (decision) => {
    const place = decision.lieu ? `${decision.beacon}, ${decision.lieu}` : decision.beacon;
    const outcomes = decision.campaigns.map((each) => `${each.name}: ${inWords(each.outcome)}`).join("; ");
    const texts = [inWords(decision.reason), decision.proximity, place, outcomes], key = JSON.stringify(texts);
    const row = shown.get(key) || newRow(texts, decision.reason === "granted");
    row.cells[0].textContent = decision.decided_at.slice(11, 19);
    row.cells[1].textContent = Number(row.cells[1].textContent) + 1;
    shown.delete(key);
    shown.set(key, row);
    rows.prepend(row);
    missed += decision.left_out;
  };

  const poll = async () => {
    const mine = generation;
    const query = new URLSearchParams(new FormData(filters));
    if (after) query.set("after", after);
    const headers = { accept: "application/json" };
    const answer = await fetch(`${rows.dataset.feed}?${query}`, { headers }).catch(() => null);
    away.hidden = Boolean(answer);
    if (answer?.status === 401) location.reload();
    if (mine !== generation) return;
    if (!answer || !answer.ok) {
      const error = answer ? await answer.json().catch(() => ({})) : {};
      showState("off", error.message || state.dataset.failed);
      return;
    }
    const found = await answer.json();
    after = found.after;
    found.decisions.forEach(add);
    for (const [key, row] of shown) {
      if (shown.size <= most) break;
      shown.delete(key);
      row.remove();
    }
    document.getElementById("live-nothing").hidden = shown.size > 0;
    if (missed) leftOut.textContent = leftOut.dataset.text.replace("{count}", missed.toLocaleString());
    if (!pause.checked && !document.hidden) showState("good", state.dataset.watching);
  };

  const pollRepeatedly = async () => {
    if (!pause.checked && !document.hidden) await poll();
    else showState("waiting", state.dataset.paused);
    setTimeout(pollRepeatedly, 1000);
  };

  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("change", () => {
    generation += 1;
    after = "";
    shown.clear();
    rows.replaceChildren();
  });
  pollRepeatedly();
})();
