"use strict";
// The plan of a venue: zoom, names, groups of beacons that crowd, and moving or choosing beacons.
document.querySelectorAll(".plan[data-mode]").forEach((plan) => {
  const dots = [...plan.querySelectorAll(".dot")], view = plan.viewBox.baseVal, mode = plan.dataset.mode;
  const whole = { x: view.x, y: view.y, width: view.width, height: view.height };
  const status = document.getElementById("plan-status");
  const DOT = 8, CROWD = 16, FONT = 12;

  const place = (dot, at) => {
    dot.at = at;
    dot.setAttribute("transform", `translate(${at})`);
    dot.classList.toggle("moved", at !== dot.saved);
  };

  // Dots and names keep their size on the screen. Of those that crowd the first one stands for all.
  const draw = () => {
    const scale = plan.getScreenCTM()?.a, heads = [], names = [];
    if (!scale) return;
    dots.filter((dot) => !dot.matches(".unplaced:not(.moved)")).forEach((dot) => {
      const [x, y] = dot.at.map((each) => each * scale);
      const isFree = dot === document.activeElement || dot.classList.contains("moved");
      const head = isFree ? null : heads.find((each) => Math.hypot(each.x - x, each.y - y) < CROWD);
      dot.classList.toggle("grouped", Boolean(head));
      if (head) head.group.push(dot);
      else heads.push({ dot, x, y, group: [dot] });
    });
    heads.forEach(({ dot, x, y, group }) => {
      const text = dot.querySelector("text"), isGroup = group.length > 1;
      const label = isGroup ? `${dot.dataset.name} +${group.length - 1}` : dot.dataset.name;
      const wide = label.length * FONT * 0.32;
      const isFree = names.every((each) => Math.abs(each.x - x) > each.wide + wide || Math.abs(each.y - y) > FONT * 1.2);
      if (isFree) names.push({ x, y, wide });
      dot.isGroup = isGroup;
      dot.classList.toggle("group", isGroup);
      dot.classList.toggle("named", isFree);
      text.textContent = label;
      dot.setAttribute("aria-label", `${label}, x ${dot.at[0]}, y ${dot.at[1]}`);
      text.style.textAnchor = x - wide < view.x * scale ? "start" : x + wide > (view.x + view.width) * scale ? "end" : "middle";
      text.setAttribute("font-size", FONT / scale);
      text.setAttribute("y", (DOT + FONT + 2) / scale);
      dot.querySelector(".point").setAttribute("r", (isGroup ? DOT * 1.4 : DOT) / scale);
      const heard = group.reduce((sum, each) => sum + (each.heard || 0), 0);
      dot.querySelector(".halo").setAttribute("r", heard ? (DOT + 30 * Math.sqrt(heard / plan.heard)) / scale : 0);
    });
  };

  const show = (x, y, width) => {
    view.width = width;
    view.height = width * whole.height / whole.width;
    view.x = Math.min(Math.max(x, whole.x), whole.x + whole.width - view.width);
    view.y = Math.min(Math.max(y, whole.y), whole.y + whole.height - view.height);
    draw();
  };
  const zoom = (factor, [x, y] = [view.x + view.width / 2, view.y + view.height / 2]) => {
    const width = factor ? Math.min(Math.max(view.width / factor, whole.width / 40), whole.width) : whole.width;
    show(x - width / 2, y - width * whole.height / whole.width / 2, width);
  };
  plan.closest(".plan-box").querySelectorAll("[data-zoom]").forEach((button) => {
    button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
  });
  plan.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".dot") && view.width < whole.width) plan.setPointerCapture(event.pointerId);
  });
  plan.addEventListener("pointermove", (event) => {
    if (!plan.hasPointerCapture(event.pointerId)) return;
    const scale = plan.getScreenCTM().a;
    show(view.x - event.movementX / scale, view.y - event.movementY / scale, view.width);
  });

  const save = async (dot) => {
    const [x, y] = dot.at;
    const answer = await fetch(`${plan.dataset.places}/${dot.dataset.id}/place`, {
      method: "POST",
      headers: { accept: "application/json" },
      body: new URLSearchParams({ x, y }),
    }).catch(() => null);
    if (answer?.ok) {
      dot.saved = dot.at;
      dot.classList.remove("unplaced");
      document.querySelector(`[data-tray="${dot.dataset.id}"]`)?.parentElement.remove();
      status.textContent = `${dot.dataset.name}: ${plan.dataset.saved} x ${x}, y ${y}`;
    } else {
      status.textContent = (await answer?.json())?.message || plan.dataset.away;
    }
    place(dot, dot.saved);
    draw();
  };

  // Moves a dot with the pointer that was pressed on `handle`: the dot, or its button in the tray.
  const drag = (handle, dot) => {
    handle.addEventListener("pointerdown", (event) => {
      if (dot.isGroup) return;
      handle.setPointerCapture(event.pointerId);
      event.preventDefault();
      handle.focus();
    });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(plan.getScreenCTM().inverse());
      place(dot, [Math.round(x), Math.round(y)]);
    });
    handle.addEventListener("pointerup", () => {
      const [x, y] = dot.at;
      const isInside = x >= view.x && y >= view.y && x <= view.x + view.width && y <= view.y + view.height;
      if (!isInside) place(dot, dot.saved);
      else if (dot.at !== dot.saved) save(dot);
    });
  };

  const boxOf = (dot) => document.querySelector(`input[name=beacons][value="${dot.dataset.id}"]`);
  const press = (dot) => {
    if (dot.isGroup) zoom(2, dot.at);
    else if (mode === "pick") boxOf(dot).click();
  };
  dots.forEach((dot) => {
    dot.at = dot.saved = [Number(dot.dataset.x), Number(dot.dataset.y)];
    if (mode === "place") drag(dot, dot);
    dot.addEventListener("click", () => press(dot));
    dot.addEventListener("focus", draw);
    dot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (step && mode === "place") place(dot, [dot.at[0] + step[0], dot.at[1] + step[1]]);
      else if (event.key === "Escape") place(dot, dot.saved);
      else if (event.key === "Enter" && dot.at !== dot.saved) save(dot);
      else if (event.key === "Enter" || event.key === " ") press(dot);
      else return;
      event.preventDefault();
    });
  });
  document.querySelectorAll("[data-tray]").forEach((button) => {
    const dot = dots.find((each) => each.dataset.id === button.dataset.tray);
    drag(button, dot);
    // By keyboard: into the middle, and on with the arrow keys.
    button.addEventListener("click", (event) => {
      if (event.detail) return;
      place(dot, [Math.round(view.x + view.width / 2), Math.round(view.y + view.height / 2)]);
      draw();
      dot.focus();
    });
  });
  if (mode === "pick") {
    const showChosen = () => dots.forEach((dot) => dot.setAttribute("aria-pressed", String(Boolean(boxOf(dot)?.checked))));
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
});
