// Evidence of what is pointed at or has the focus, arrow keys, and the moves of a walk. The tables
// of the page have all of it.
"use strict";

const MOVE_MILLISECONDS = 900;
const LISTED_LINKS = 15;

function makeElement(name, text, ...children) {
  const element = document.createElement(name);
  element.append(text, ...children);
  return element;
}

// On a narrow screen the picture scrolls; the start is in its middle.
function showMiddle() {
  for (const one of document.querySelectorAll(".graph-scroll")) one.scrollLeft = (one.scrollWidth - one.clientWidth) / 2;
}
showMiddle();
document.addEventListener("htmx:afterSwap", showMiddle);

// -- evidence

// A row of the table of links in words: source, type, target, weight, evidence.
function describeLink(number) {
  const cells = [...document.getElementById(`link-${number}`).cells].map((cell) => cell.textContent.trim());
  const [source, type, target, weight, evidence] = cells;
  const names = makeElement("strong", `${source} – ${target}`);
  return makeElement("li", names, ` ${type}, ${weight}: `, makeElement("bdi", evidence));
}

function showDetails(title, numbers, href) {
  const list = makeElement("ul", "", ...numbers.slice(0, LISTED_LINKS).map(describeLink));
  const more = numbers.length - LISTED_LINKS;
  const heading = makeElement("h2", title);
  const parts = [heading, list];
  if (href) {
    const link = makeElement("a", "Open the skill");
    link.href = href;
    parts.splice(1, 0, makeElement("p", link));
  }
  if (more > 0) parts.push(makeElement("p", `${more} more are in the table of links.`));
  document.querySelector("[data-details]").replaceChildren(...parts);
}

function choose(svg, isNear) {
  svg.classList.add("chosen");
  for (const one of svg.querySelectorAll(".link, .node")) one.classList.toggle("near", isNear(one));
}

function chooseSkill(node) {
  const svg = node.closest(".graph");
  const number = node.dataset.skill;
  const links = [...svg.querySelectorAll(".link")].filter((link) => link.dataset.ends.split(" ").includes(number));
  const ends = new Set([number, ...links.flatMap((link) => link.dataset.ends.split(" "))]);
  choose(svg, (one) => (one.matches(".node") ? ends.has(one.dataset.skill) : links.includes(one)));
  const skill = document.querySelector(`#skill-${number} th a`);
  showDetails(skill.textContent, links.map((link) => link.dataset.link), skill.href);
}

function chooseLink(link) {
  const ends = link.dataset.ends.split(" ");
  choose(link.closest(".graph"), (one) => one === link || ends.includes(one.dataset.skill));
  showDetails("Link", [link.dataset.link]);
}

for (const name of ["pointerover", "focusin"]) {
  document.addEventListener(name, (event) => {
    const node = event.target.closest(".graph .node");
    const link = event.target.closest(".graph .link");
    if (node) chooseSkill(node);
    else if (link) chooseLink(link);
  });
}
for (const name of ["pointerout", "focusout"]) {
  document.addEventListener(name, (event) => {
    const svg = event.target.closest(".graph");
    if (svg && !(event.relatedTarget && svg.contains(event.relatedTarget) && event.relatedTarget !== svg)) svg.classList.remove("chosen");
  });
}

// Arrow keys, Home and End move among the skills of the picture.
const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
document.addEventListener("keydown", (event) => {
  const node = event.target.closest(".graph .node");
  if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
  const nodes = [...node.closest(".graph").querySelectorAll(".node")];
  let place = nodes.indexOf(node) + (KEYS[event.key] ?? 0);
  if (event.key === "Home") place = 0;
  else if (event.key === "End") place = nodes.length - 1;
  else if (!(event.key in KEYS)) return;
  event.preventDefault();
  nodes[(place + nodes.length) % nodes.length].focus();
});

// -- walk

const controls = document.querySelector(".walk-controls");
if (controls) {
  const moves = Number(controls.dataset.moves);
  const play = controls.querySelector("[data-walk=play]");
  let move = Number(controls.dataset.move);
  let timer = 0;

  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  };
  const show = (wanted) => {
    move = Math.min(Math.max(wanted, 0), moves);
    controls.querySelector("[data-walk-move]").textContent = move;
    for (const node of document.querySelectorAll(".node[data-radii]")) {
      node.querySelector("circle").setAttribute("r", node.dataset.radii.split(" ")[move]);
    }
    for (const cell of document.querySelectorAll(".walk [data-column]")) {
      cell.classList.toggle("present", Number(cell.dataset.column) === move);
    }
    const url = new URL(location.href);
    url.searchParams.set("move", move);
    history.replaceState(history.state, "", url);
    if (move === moves) stop();
  };
  const places = { first: () => 0, back: () => move - 1, forward: () => move + 1, last: () => moves };

  play.hidden = false;
  controls.addEventListener("click", (event) => {
    const name = event.target.closest("[data-walk]")?.dataset.walk;
    if (!name || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (name !== "play") {
      stop();
      show(places[name]());
    } else if (timer) {
      stop();
    } else {
      if (move === moves) show(0);
      timer = setInterval(() => show(move + 1), MOVE_MILLISECONDS);
      play.textContent = "Pause";
    }
  });
  // A page that is not seen does not move, and one that is left keeps no timer.
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); });
  addEventListener("pagehide", stop);
}
