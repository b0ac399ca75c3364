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
