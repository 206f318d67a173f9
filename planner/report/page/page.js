"use strict";
// Tables are sorted by a button in every head; numbers by size, whatever unit they are written in.
(function () {
  const FACTORS = {
    us: 1e-6, ms: 1e-3, s: 1, GB: 1, million: 1e6, billion: 1e9, trillion: 1e12,
    kB: 1e3, MB: 1e6, TB: 1e12, hours: 1 / 24, days: 1,
  };
  const NUMBER = /^([+\-−]?)(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?:\s+([A-Za-z]+))?/;
  const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function text(row, column) {
    const cell = row.cells[column];
    const own = cell.hasAttribute("data-key") ? cell.getAttribute("data-key") : cell.textContent;
    return own.trim();
  }

  function size(words) {
    const found = NUMBER.exec(words);
    if (!found) return null;
    const value = Number(found[2].replace(/,/g, "")) * (FACTORS[found[3]] || 1);
    return found[1] === "" || found[1] === "+" ? value : -value;
  }

  function sort(table, column, down) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => {
      const words = text(row, column);
      return { row, words, size: size(words), absent: words === "" || words === "–" };
    });
    const numbers = rows.every((one) => one.absent || one.size !== null);
    const sign = down ? -1 : 1;
    rows.sort((a, b) => {
      if (a.absent || b.absent) return a.absent - b.absent;
      return sign * (numbers ? a.size - b.size : natural.compare(a.words, b.words));
    });
    body.append(...rows.map((one) => one.row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) {
          if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
        }
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
    });
  }

  // boxes that scroll can be scrolled with the keyboard
  function reach() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) {
        box.tabIndex = 0;
      } else {
        box.removeAttribute("tabindex");
      }
    }
  }
  window.addEventListener("resize", reach);
  window.addEventListener("load", reach);

  // a link to a point opens it
  function open() {
    const place = document.getElementById(location.hash.slice(1));
    if (place && place.tagName === "DETAILS") {
      place.open = true;
      place.scrollIntoView();
      place.querySelector("summary").focus();
    }
  }
  window.addEventListener("hashchange", open);
  open();
})();
