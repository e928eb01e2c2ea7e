// What pages do beyond links and forms. All of it can be done without.
"use strict";

document.documentElement.classList.add("js");

// A field that sends its form when it changes.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-autosubmit]")) event.target.form.requestSubmit();
});

// Text that was typed into a search field before the scripts were loaded: its event is over.
// Listeners run in their order, so htmx already watches the form.
document.addEventListener("DOMContentLoaded", () => {
  for (const field of document.querySelectorAll("[hx-get] [data-search]")) {
    if (field.value !== field.defaultValue) field.form.requestSubmit();
  }
});

// "/" moves to the search field, as in other tools.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const field = document.querySelector("[data-search]");
  if (field) {
    event.preventDefault();
    field.focus();
    field.select();
  }
});

// Buttons that copy the text of an element.
for (const button of document.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  // Not the present words: those of the last click may still be shown.
  const label = (button.dataset.label ??= button.textContent);
  try {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser does not allow copying";
  }
  setTimeout(() => { button.textContent = label; }, 2000);
});

// The stages of a query as they start; the page is loaded again when it has ended.
const stream = document.querySelector("[data-events]");
if (stream) {
  const events = new EventSource(stream.dataset.events);
  events.addEventListener("stage", (event) => {
    const { stage } = JSON.parse(event.data);
    // The stream begins with the stages that the page already lists.
    if ([...stream.children].some((item) => item.textContent === stage)) return;
    const item = document.createElement("li");
    item.textContent = stage;
    stream.append(item);
  });
  for (const name of ["done", "failed", "cancelled"]) {
    events.addEventListener(name, () => {
      events.close();
      location.reload();
    });
  }
  // A stream that is refused or lost is not opened again: the page still shows the state.
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 2000);
  });
  addEventListener("pagehide", () => events.close());
}

// A page of work that goes on, loaded again after these seconds; a <noscript> does it without scripts.
const awaited = document.querySelector("[data-reload-after]");
if (awaited) setTimeout(() => location.reload(), 1000 * awaited.dataset.reloadAfter);

// A part of the page that is loaded again and again: whether the server still answers.
const connection = document.querySelector("[data-connection]");
if (connection) {
  const show = (lost) => { connection.hidden = !lost; };
  document.addEventListener("htmx:sendError", () => show(true));
  document.addEventListener("htmx:responseError", () => show(true));
  document.addEventListener("htmx:afterOnLoad", () => show(false));
}
