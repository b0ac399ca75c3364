"use strict";
// The plan of a venue: zoom, names, groups of beacons that crowd, and moving or choosing beacons.
document.querySelectorAll(".plan[data-mode]").forEach((plan) => {
  const dots = [...plan.querySelectorAll(".dot")], box = plan.closest(".plan-box");
  const whole = plan.viewBox.baseVal, start = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
  const status = document.getElementById("plan-status"), mode = plan.dataset.mode;
  const DOT = 8, CROWD = 16, FONT = 12;

  const nameOf = (dot) => dot.dataset.name;
  const positionOf = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plan.getScreenCTM().inverse());
    return [Math.round(point.x), Math.round(point.y)];
  };
  const place = (dot, x, y) => {
    dot.now = [x, y];
    dot.setAttribute("transform", `translate(${x} ${y})`);
    dot.classList.toggle("moved", String(x) !== dot.dataset.x || String(y) !== dot.dataset.y);
  };

  // Dots and names keep their size on the screen. Of those that crowd the first one stands for all.
  const draw = () => {
    const matrix = plan.getScreenCTM();
    if (!matrix || !matrix.a) return;
    const unit = 1 / matrix.a, heads = [], names = [];
    dots.filter((dot) => !dot.matches(".unplaced:not(.moved)")).forEach((dot) => {
      const [x, y] = (dot.now || [dot.dataset.x, dot.dataset.y]).map((each) => Number(each) / unit);
      const isFree = dot === document.activeElement || dot.classList.contains("moved");
      const head = isFree ? null : heads.find((each) => Math.hypot(each.x - x, each.y - y) < CROWD);
      dot.classList.toggle("grouped", Boolean(head));
      if (head) head.group.push(dot);
      else heads.push({ dot, x, y, group: [dot] });
    });
    heads.forEach(({ dot, x, y, group }) => {
      const text = dot.querySelector("text"), count = group.length;
      const label = count > 1 ? `${nameOf(dot)} +${count - 1}` : nameOf(dot);
      const wide = label.length * FONT * 0.32;
      const isFree = names.every((each) => Math.abs(each.x - x) > each.wide + wide || Math.abs(each.y - y) > FONT * 1.2);
      if (isFree) names.push({ x, y, wide });
      dot.group = group;
      dot.classList.toggle("group", count > 1);
      dot.classList.toggle("named", isFree);
      text.textContent = label;
      dot.setAttribute("aria-label", `${label}, x ${Math.round(x * unit)}, y ${Math.round(y * unit)}`);
      text.style.textAnchor = x - wide < whole.x / unit ? "start" : x + wide > (whole.x + whole.width) / unit ? "end" : "middle";
      text.setAttribute("font-size", FONT * unit);
      text.setAttribute("y", (DOT + FONT + 2) * unit);
      dot.querySelector(".point").setAttribute("r", (count > 1 ? DOT * 1.4 : DOT) * unit);
      const heard = group.reduce((sum, each) => sum + (each.heard || 0), 0);
      dot.querySelector(".halo").setAttribute("r", heard ? (DOT + 30 * Math.sqrt(heard / plan.heard)) * unit : 0);
    });
  };

  const show = (x, y, width) => {
    const height = width * start.height / start.width;
    whole.x = Math.min(Math.max(x, start.x), start.x + start.width - width);
    whole.y = Math.min(Math.max(y, start.y), start.y + start.height - height);
    whole.width = width;
    whole.height = height;
    draw();
  };
  const zoom = (factor, x = whole.x + whole.width / 2, y = whole.y + whole.height / 2) => {
    const width = factor ? Math.min(Math.max(whole.width / factor, start.width / 40), start.width) : start.width;
    show(x - width / 2, y - width * start.height / start.width / 2, width);
  };
  box.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => zoom(Number(button.dataset.zoom))));
  plan.addEventListener("pointerdown", (event) => {
    if (event.target.closest(".dot") || whole.width >= start.width) return;
    plan.setPointerCapture(event.pointerId);
  });
  plan.addEventListener("pointermove", (event) => {
    if (!plan.hasPointerCapture(event.pointerId)) return;
    const unit = 1 / plan.getScreenCTM().a;
    show(whole.x - event.movementX * unit, whole.y - event.movementY * unit, whole.width);
  });

  const save = async (dot) => {
    if (!dot.now || !dot.classList.contains("moved")) return;
    const [x, y] = dot.now;
    const answer = await fetch(`${plan.dataset.places}/${dot.dataset.id}/place`, {
      method: "POST",
      headers: { accept: "application/json", "x-forgery-token": plan.dataset.token },
      body: new URLSearchParams({ x, y }),
    }).catch(() => null);
    if (answer?.ok) {
      dot.dataset.x = x;
      dot.dataset.y = y;
      dot.classList.remove("unplaced");
      document.querySelector(`[data-tray="${dot.dataset.id}"]`)?.parentElement.remove();
      status.textContent = `${nameOf(dot)}: ${plan.dataset.saved} x ${x}, y ${y}`;
    } else {
      const error = answer ? await answer.json().catch(() => ({})) : {};
      status.textContent = error.message || String(answer ? answer.status : "");
    }
    place(dot, Number(dot.dataset.x), Number(dot.dataset.y));
    draw();
  };

  // Moves a dot with the pointer that was pressed on `handle`: the dot, or its button in the tray.
  const drag = (handle, dot) => {
    handle.addEventListener("pointerdown", (event) => {
      if (dot.group && dot.group.length > 1) return;
      handle.setPointerCapture(event.pointerId);
      event.preventDefault();
      handle.focus();
    });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      dot.classList.add("moving");
      place(dot, ...positionOf(event));
    });
    handle.addEventListener("pointerup", () => {
      dot.classList.remove("moving");
      const [x, y] = dot.now || [];
      const isInside = x >= whole.x && y >= whole.y && x <= whole.x + whole.width && y <= whole.y + whole.height;
      if (isInside) save(dot);
      else if (dot.now) place(dot, Number(dot.dataset.x), Number(dot.dataset.y));
    });
  };

  const boxOf = (dot) => document.querySelector(`input[name=beacons][value="${dot.dataset.id}"]`);
  const showChosen = () => dots.forEach((dot) => dot.setAttribute("aria-pressed", String(Boolean(boxOf(dot)?.checked))));
  const press = (dot) => {
    if (dot.group && dot.group.length > 1) zoom(2, Number(dot.dataset.x), Number(dot.dataset.y));
    else if (mode === "pick") boxOf(dot).click();
  };
  dots.forEach((dot) => {
    if (mode === "place") drag(dot, dot);
    dot.addEventListener("click", () => press(dot));
    dot.addEventListener("focus", draw);
    dot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (step && mode === "place") {
        const [x, y] = dot.now || [Number(dot.dataset.x), Number(dot.dataset.y)];
        place(dot, x + step[0], y + step[1]);
      } else if (event.key === "Escape") {
        place(dot, Number(dot.dataset.x), Number(dot.dataset.y));
      } else if (event.key === "Enter" && dot.classList.contains("moved")) {
        save(dot);
      } else if (event.key === "Enter" || event.key === " ") {
        press(dot);
      } else return;
      event.preventDefault();
    });
  });
  document.querySelectorAll("[data-tray]").forEach((button) => {
    const dot = dots.find((each) => each.dataset.id === button.dataset.tray);
    drag(button, dot);
    // By keyboard: into the middle, and on with the arrow keys.
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      place(dot, Math.round(whole.x + whole.width / 2), Math.round(whole.y + whole.height / 2));
      draw();
      dot.focus();
    });
  });
  if (mode === "pick") {
    document.addEventListener("change", showChosen);
    showChosen();
  }
  document.body.addEventListener("htmx:afterSettle", () => {
    const found = [...document.querySelectorAll("[data-detections]")];
    plan.heard = Math.max(1, ...found.map((each) => Number(each.dataset.detections)));
    dots.forEach((dot) => { dot.heard = Number(found.find((each) => each.dataset.beacon === dot.dataset.id)?.dataset.detections || 0); });
    draw();
  });
  new ResizeObserver(draw).observe(plan);
  draw();
});
