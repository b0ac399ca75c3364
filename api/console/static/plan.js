"use strict";
// Moves beacons on the plan with the pointer or the arrow keys, and saves their new positions.
(() => {
  const plan = document.getElementById("plan");
  if (!plan || !plan.dataset.places) return;
  const status = document.getElementById("plan-status");

  const show = (dot, x, y) => {
    dot.dataset.nowX = x;
    dot.dataset.nowY = y;
    dot.setAttribute("transform", `translate(${x} ${y})`);
    dot.classList.toggle("moved", String(x) !== dot.dataset.x || String(y) !== dot.dataset.y);
  };

  const save = async (dot) => {
    const x = dot.dataset.nowX, y = dot.dataset.nowY;
    if (x === undefined || !dot.classList.contains("moved")) return;
    const answer = await fetch(`${plan.dataset.places}/${dot.dataset.id}/place`, {
      method: "POST",
      headers: { "content-type": "application/x-www-form-urlencoded", "x-forgery-token": plan.dataset.token },
      body: new URLSearchParams({ x, y }),
    }).catch(() => null);
    if (answer && answer.ok && !answer.redirected) {
      dot.dataset.x = x;
      dot.dataset.y = y;
      const cell = document.querySelector(`[data-position="${dot.dataset.id}"]`);
      if (cell) cell.textContent = `${x}, ${y}`;
      const name = dot.querySelector("title").textContent;
      dot.setAttribute("aria-label", `${name}, x ${x}, y ${y}`);
      status.textContent = `${name}: ${plan.dataset.saved} x ${x}, y ${y}`;
    } else {
      const error = answer ? await answer.json().catch(() => ({})) : {};
      status.textContent = error.message || String(answer ? answer.status : "");
    }
    show(dot, dot.dataset.x, dot.dataset.y);
  };

  const positionOf = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plan.getScreenCTM().inverse());
    return [Math.round(point.x), Math.round(point.y)];
  };

  plan.querySelectorAll(".dot").forEach((dot) => {
    dot.addEventListener("pointerdown", (event) => {
      dot.setPointerCapture(event.pointerId);
      event.preventDefault();
      dot.focus();
    });
    dot.addEventListener("pointermove", (event) => {
      if (dot.hasPointerCapture(event.pointerId)) show(dot, ...positionOf(event));
    });
    dot.addEventListener("pointerup", () => save(dot));
    dot.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const step = steps[event.key];
      if (step) {
        show(dot, Number(dot.dataset.nowX ?? dot.dataset.x) + step[0], Number(dot.dataset.nowY ?? dot.dataset.y) + step[1]);
        event.preventDefault();
      } else if (event.key === "Enter") {
        save(dot);
      } else if (event.key === "Escape") {
        show(dot, dot.dataset.x, dot.dataset.y);
      }
    });
  });
})();
