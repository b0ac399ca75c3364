"use strict";
// Asks once a second for decisions while somebody looks, and keeps the newest few.
(() => {
  const rows = document.getElementById("live-rows"), filters = document.getElementById("live-filters");
  const state = document.getElementById("live-state"), button = document.getElementById("live-pause");
  const leftOut = document.getElementById("live-left-out");
  const most = Number(rows.dataset.most);
  let after = "", isPaused = false, missed = 0, generation = 0;

  const say = (kind, text) => {
    state.className = `state ${kind}`;
    state.textContent = text;
  };

  const cell = (row, text, name) => {
    const made = row.insertCell();
    if (name) made.className = name;
    made.textContent = text;
    return made;
  };

  const mark = (place, text, isGood) => {
    const made = document.createElement("span");
    made.className = isGood ? "state good" : "state";
    made.textContent = text;
    place.replaceChildren(made);
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

  const ask = async () => {
    const mine = generation;
    const query = new URLSearchParams(new FormData(filters));
    if (after) query.set("after", after);
    const answer = await fetch(`${rows.dataset.feed}?${query}`).catch(() => null);
    if (answer && answer.redirected) location.reload();
    if (mine !== generation) return;
    if (!answer || !answer.ok) {
      const told = answer ? await answer.json().catch(() => ({})) : {};
      say("off", told.message || state.dataset.failed);
      return;
    }
    const found = await answer.json();
    after = found.after;
    found.decisions.forEach(add);
    while (rows.rows.length > most) rows.deleteRow(-1);
    document.getElementById("live-nothing").hidden = rows.rows.length > 0;
    if (missed) leftOut.textContent = leftOut.dataset.text.replace("{count}", missed.toLocaleString());
    if (!isPaused && !document.hidden) say("good", state.dataset.watching);
  };

  const turn = async () => {
    if (!isPaused && !document.hidden) await ask();
    else say("waiting", state.dataset.paused);
    setTimeout(turn, 1000);
  };

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? button.dataset.resume : button.dataset.pause;
    if (isPaused) say("waiting", state.dataset.paused);
  });
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("change", () => {
    generation += 1;
    after = "";
    rows.replaceChildren();
  });
  turn();
})();
