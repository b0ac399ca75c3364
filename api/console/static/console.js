"use strict";
// Shared by several pages: fields that depend on others, lists that submit, images as data URLs.
(() => {
  const current = document.querySelector("nav [aria-current]");
  if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.clientWidth / 2;

  const each = (selector, work) => document.querySelectorAll(selector).forEach(work);

  // Parts that are shown for one choice of a list: "format:url". Hidden fields keep their values.
  each("[data-if]", (part) => {
    const [list, value] = part.dataset.if.split(":");
    const field = document.getElementById(list);
    const show = () => { part.hidden = field.value !== value; };
    field.addEventListener("change", show);
    show();
  });

  // A search field, a filter and a count over the rows of a list; what is chosen stays chosen.
  each("[data-finder]", (finder) => {
    const list = document.getElementById(finder.dataset.finder);
    const search = finder.querySelector("input"), state = finder.querySelector("select");
    const rows = [...list.querySelectorAll("[data-state]")];
    const show = () => {
      const wanted = search.value.trim().toLowerCase();
      rows.forEach((row) => {
        row.hidden = !row.textContent.toLowerCase().includes(wanted) || Boolean(state && state.value && state.value !== row.dataset.state);
      });
      const shown = rows.filter((row) => !row.hidden).length;
      const chosen = finder.dataset.chosen && `${list.querySelectorAll(":checked").length} ${finder.dataset.chosen} · `;
      finder.querySelector("[role=status]").textContent = chosen + (shown < rows.length ? `${shown} / ${rows.length}` : shown);
    };
    finder.addEventListener("input", show);
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
    list.addEventListener("change", show);
    finder.addEventListener("click", (event) => {
      if (event.target.dataset.tag === undefined) return;
      search.value = search.value === event.target.dataset.tag ? "" : event.target.dataset.tag;
      show();
    });
    finder.hidden = false;
    show();
  });

  // Tables are sorted by the heading that is pressed.
  each("table[data-sorts] thead th", (heading) => {
    const button = document.createElement("button");
    button.className = "plain";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.ariaSort === "ascending", body = heading.closest("table").tBodies[0];
      const text = (row) => row.cells[heading.cellIndex].textContent.trim();
      const order = (one, other) => text(one).localeCompare(text(other), document.documentElement.lang, { numeric: true });
      body.append(...[...body.rows].sort((one, other) => (down ? order(other, one) : order(one, other))));
      heading.parentElement.querySelectorAll("th").forEach((each) => each.removeAttribute("aria-sort"));
      heading.ariaSort = down ? "descending" : "ascending";
    });
  });

  each("[data-mirror]", (shown) => {
    const field = document.getElementById(shown.dataset.mirror);
    if (field) field.addEventListener("input", () => { shown.textContent = field.value; });
  });

  each("select[data-submits]", (list) => list.addEventListener("change", () => list.form.requestSubmit()));

  // Parts that are loaded again every few seconds, while the page is visible.
  each("[data-again]", (part) => setInterval(() => {
    if (!document.hidden) htmx.trigger(part, "again");
  }, Number(part.dataset.again) * 1000));

  each("input[type=file][data-into]", (chooser) => chooser.addEventListener("change", () => {
    const file = chooser.files[0];
    if (!file) return;
    chooser.setCustomValidity(file.size > Number(chooser.dataset.most) ? chooser.dataset.tooLarge : "");
    if (!chooser.reportValidity()) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => { document.getElementById(chooser.dataset.into).value = reader.result; });
    reader.readAsDataURL(file);
  }));
})();
