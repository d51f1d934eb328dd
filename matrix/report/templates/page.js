"use strict";
(() => {
  const dialog = document.getElementById("drawer");
  const order = [...document.querySelectorAll(".cell")].map((d) => d.dataset.cell);
  let current = null;
  let opener = null;

  function show(id) {
    const source = document.getElementById(id);
    if (!source) return false;
    const body = source.cloneNode(true);
    body.removeAttribute("id");
    current = id;
    dialog.querySelector("h2").textContent = source.dataset.title;
    dialog.querySelector(".slot").replaceChildren(body);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    history.replaceState(null, "", "#" + id);
    return true;
  }

  function step(by) {
    const at = order.indexOf(current);
    const next = order[at + by];
    if (at >= 0 && next) show(next);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#c-"]');
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (!dialog.contains(link)) opener = link;
    if (show(link.getAttribute("href").slice(1))) event.preventDefault();
  });
  dialog.addEventListener("click", (event) => {
    const act = event.target.dataset.act;
    if (event.target === dialog || act === "close") dialog.close();
    if (act === "back") step(-1);
    if (act === "next") step(1);
    if (event.target.closest('a[href^="#e-"]')) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  dialog.addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
    if (opener) opener.focus();
  });

  // Arrow keys walk the matrix as they do in a spreadsheet.
  document.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const move = moves[event.key];
    const cell = move && event.target.closest && event.target.closest(".matrix td");
    if (!cell) return;
    const rows = [...cell.closest("tbody").rows].filter((row) => !row.hidden);
    let y = rows.indexOf(cell.parentElement) + move[0];
    let x = cell.cellIndex + move[1];
    for (; rows[y] && rows[y].cells[x]; y += move[0], x += move[1]) {
      const link = rows[y].cells[x].querySelector("a");
      if (link) {
        link.focus();
        event.preventDefault();
        return;
      }
    }
  });

  const find = document.querySelector(".find");
  find.hidden = false;
  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll("[data-row]")) {
      const text = row.dataset.row.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });

  if (location.hash.startsWith("#c-")) show(location.hash.slice(1));
})();
