"use strict";
// Polls for decisions once a second while the page is visible, and keeps the newest few.
(() => {
  const rows = document.getElementById("live-rows"), filters = document.getElementById("live-filters");
  const state = document.getElementById("live-state"), button = document.getElementById("live-pause");
  const leftOut = document.getElementById("live-left-out");
  const most = Number(rows.dataset.most);
  let after = "", isPaused = false, missed = 0, generation = 0;

  const showState = (kind, text) => {
    state.className = `state ${kind}`;
    state.textContent = text;
  };

  const cell = (row, text, name) => {
    const added = row.insertCell();
    if (name) added.className = name;
    added.textContent = text;
    return added;
  };

  const mark = (place, text, isGood) => {
    const label = document.createElement("span");
    label.className = isGood ? "state good" : "state";
    label.textContent = text;
    place.replaceChildren(label);
  };

  const add = (decision) => {
    const row = rows.insertRow(0);
    cell(row, decision.decided_at.slice(11, 19), "nowrap");
    mark(cell(row, ""), decision.reason_text, decision.reason === "granted");
    cell(row, decision.proximity);
    cell(row, decision.lieu ? `${decision.beacon}, ${decision.lieu}` : decision.beacon);
    cell(row, decision.campaigns.map((each) => `${each.name}: ${each.outcome_text}`).join("; "));
    missed += decision.left_out;
  };

  const poll = async () => {
    const mine = generation;
    const query = new URLSearchParams(new FormData(filters));
    if (after) query.set("after", after);
    const answer = await fetch(`${rows.dataset.feed}?${query}`).catch(() => null);
    if (answer && answer.redirected) location.reload();
    if (mine !== generation) return;
    if (!answer || !answer.ok) {
      const error = answer ? await answer.json().catch(() => ({})) : {};
      showState("off", error.message || state.dataset.failed);
      return;
    }
    const found = await answer.json();
    after = found.after;
    found.decisions.forEach(add);
    while (rows.rows.length > most) rows.deleteRow(-1);
    document.getElementById("live-nothing").hidden = rows.rows.length > 0;
    if (missed) leftOut.textContent = leftOut.dataset.text.replace("{count}", missed.toLocaleString());
    if (!isPaused && !document.hidden) showState("good", state.dataset.watching);
  };

  const pollRepeatedly = async () => {
    if (!isPaused && !document.hidden) await poll();
    else showState("waiting", state.dataset.paused);
    setTimeout(pollRepeatedly, 1000);
  };

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? button.dataset.resume : button.dataset.pause;
    if (isPaused) showState("waiting", state.dataset.paused);
  });
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("change", () => {
    generation += 1;
    after = "";
    rows.replaceChildren();
  });
  pollRepeatedly();
})();
