"use strict";
// Shared by several pages: fields that depend on others, lists that submit, images as data URLs.
(() => {
  const current = document.querySelector("nav [aria-current]");
  current?.scrollIntoView({ block: "nearest", inline: "center" });

  const each = (selector, work) => document.querySelectorAll(selector).forEach(work);

  // Parts that are shown for one choice of a list: "format:url". Fields of others are not sent,
  // except under another name, so that what was typed outlives a refusal.
  each("[data-if]", (part) => {
    const [list, value] = part.dataset.if.split(":");
    const field = document.getElementById(list);
    const show = () => { part.hidden = part.disabled = field.value !== value; };
    field.addEventListener("change", show);
    field.form.addEventListener("formdata", ({ formData }) => {
      part.querySelectorAll(":disabled").forEach(({ name, value }) => formData.set(`unsent-${name}`, value));
    });
    show();
  });

  // A search field and a count over a checklist; what is chosen stays chosen.
  each("[data-finder]", (finder) => {
    const list = document.getElementById(finder.dataset.finder), search = finder.querySelector("input");
    const rows = [...list.children];
    const show = () => {
      const wanted = search.value.trim().toLowerCase();
      rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
      const shown = rows.filter((row) => !row.hidden).length, chosen = list.querySelectorAll(":checked").length;
      finder.querySelector("[role=status]").textContent = `${chosen} ${finder.dataset.chosen} · ${shown} / ${rows.length}`;
    };
    finder.addEventListener("input", show);
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
    list.addEventListener("change", show);
    finder.hidden = false;
    show();
  });

  // A button that is pressed at first, and again when a field of its form was changed. It sends the
  // fields of accounts that may only read, too.
  each("[data-again-on-change]", (button) => {
    const press = () => {
      const disabled = [...button.form.querySelectorAll("fieldset:disabled")];
      disabled.forEach((fields) => { fields.disabled = false; });
      button.form.requestSubmit(button);
      disabled.forEach((fields) => { fields.disabled = true; });
    };
    button.form.addEventListener("change", press);
    press();
  });

  each("select[data-submits]", (list) => list.addEventListener("change", () => list.form.requestSubmit()));

  // A second click on a slow connection does not send a form again.
  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (form.method !== "post" || submitter?.formTarget) return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    setTimeout(() => delete form.dataset.sent, 10000);
  });

  // Parts that are loaded again every few seconds, while the page is visible.
  each("[data-again]", (part) => setInterval(() => {
    if (!document.hidden && !document.getElementById(part.dataset.pause)?.checked) htmx.trigger(part, "again");
  }, Number(part.dataset.again) * 1000));
  document.body.addEventListener("htmx:oobAfterSwap", () => each("#live-rows > tr:nth-child(n + 201)", (row) => row.remove()));

  // Parts that did not come are asked for again, and a banner says that the interface is away.
  const away = document.getElementById("away");
  document.body.addEventListener("htmx:sendError", (event) => {
    const part = event.detail.elt, address = part.getAttribute("hx-get");
    away.hidden = false;
    if (address && !part.dataset.again) setTimeout(() => htmx.ajax("GET", address, { source: part, target: part }), 2000);
  });
  document.body.addEventListener("htmx:afterOnLoad", () => { away.hidden = true; });

  // Spreadsheets on Windows write plain CSV in an older encoding.
  const textOf = (bytes) => {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      return new TextDecoder("windows-1252").decode(bytes);
    }
  };

  each("input[type=file][data-into]", (chooser) => chooser.addEventListener("change", () => {
    const file = chooser.files[0], field = document.getElementById(chooser.dataset.into);
    if (!file) return;
    chooser.setCustomValidity(file.size > Number(chooser.dataset.most) ? chooser.dataset.tooLarge : "");
    if (!chooser.reportValidity()) return;
    if (field.tagName === "TEXTAREA") {
      file.arrayBuffer().then((bytes) => { field.value = textOf(bytes); });
      return;
    }
    const reader = new FileReader();
    reader.addEventListener("load", () => { field.value = reader.result; });
    reader.readAsDataURL(file);
  }));
})();
