"use strict";
// The plan of a venue: zoom, names, circles for the last minutes, and beacons that are dragged.
document.querySelectorAll(".plan").forEach((plan) => {
  const dots = [...plan.querySelectorAll(".dot")], status = document.getElementById("plan-status");
  const DOT = 8, FONT = 12;
  let zoom = 1, heard = 1;

  // A beacon without a position is not shown.
  const place = (dot, at) => {
    dot.at = at;
    dot.classList.toggle("unplaced", !at);
    if (at) dot.setAttribute("transform", `translate(${at})`);
  };

  // Dots and names keep their size on the screen. A name that would cover another one is left out.
  const draw = () => {
    const scale = plan.getScreenCTM()?.a, names = [];
    if (!scale) return;
    dots.filter((dot) => dot.at).forEach((dot) => {
      const [x, y] = dot.at.map((each) => each * scale), wide = dot.textContent.length * FONT * 0.32;
      const isFree = names.every((each) => Math.abs(each.x - x) > each.wide + wide || Math.abs(each.y - y) > FONT * 1.2);
      if (isFree) names.push({ x, y, wide });
      dot.classList.toggle("named", isFree);
      const text = dot.querySelector("text");
      text.setAttribute("font-size", FONT / scale);
      text.setAttribute("y", (DOT + FONT + 2) / scale);
      dot.querySelector(".point").setAttribute("r", DOT / scale);
      dot.querySelector(".halo").setAttribute("r", dot.heard ? (DOT + 30 * Math.sqrt(dot.heard / heard)) / scale : 0);
    });
  };

  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const view = plan.parentElement;
    const x = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth, y = (view.scrollTop + view.clientHeight / 2) / view.scrollHeight;
    zoom = Math.min(Math.max(zoom * Number(button.dataset.zoom), 1), 40);
    plan.style.width = `${100 * zoom}%`;
    plan.style.maxHeight = `${65 * zoom}vh`;
    view.scrollTo(x * view.scrollWidth - view.clientWidth / 2, y * view.scrollHeight - view.clientHeight / 2);
  }));

  const save = async (dot) => {
    const [x, y] = dot.at;
    status.textContent = "";
    const address = `${plan.dataset.places}/${dot.dataset.id}/place`;
    await htmx.ajax("POST", address, { target: status, values: { x, y } }).catch(() => {});
    if (status.querySelector("[data-placed]")) {
      dot.saved = dot.at;
      document.querySelector(`[data-tray="${dot.dataset.id}"]`)?.parentElement.remove();
    }
    place(dot, dot.saved);
    draw();
  };

  // Moves a dot with the pointer that was pressed on `handle`: the dot, or its link in the tray.
  const drag = (handle, dot) => {
    handle.addEventListener("dragstart", (event) => event.preventDefault()); // as a link
    let isDragged = false;
    handle.addEventListener("pointerdown", (event) => {
      isDragged = false;
      handle.setPointerCapture(event.pointerId);
    });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(plan.getScreenCTM().inverse());
      const at = [Math.round(x), Math.round(y)];
      if (String(at) === String(dot.at)) return;
      isDragged = true;
      place(dot, at);
      draw();
    });
    handle.addEventListener("pointerup", (event) => {
      const isInside = document.elementFromPoint(event.clientX, event.clientY)?.closest(".plan");
      if (isDragged && isInside) save(dot);
      else place(dot, dot.saved);
    });
    handle.addEventListener("click", (event) => {
      if (isDragged) event.preventDefault();
      isDragged = false;
    });
  };

  dots.forEach((dot) => {
    place(dot, dot.dataset.x && [Number(dot.dataset.x), Number(dot.dataset.y)]);
    dot.saved = dot.at;
    if (!plan.dataset.places) return;
    [dot, ...document.querySelectorAll(`[data-tray="${dot.dataset.id}"]`)].forEach((handle) => drag(handle, dot));
  });
  document.body.addEventListener("htmx:afterSettle", () => {
    const found = new Map([...document.querySelectorAll("[data-detections]")].map(({ dataset }) => [dataset.beacon, Number(dataset.detections)]));
    heard = Math.max(1, ...found.values());
    dots.forEach((dot) => { dot.heard = found.get(dot.dataset.id); });
    draw();
  });
  new ResizeObserver(draw).observe(plan);
});
