"use strict";
/** Sort the rows of a table by a column; rows without a number stay last. */
function sortBy(table, column, descending) {
  const body = table.tBodies[0];
  const value = (row) => {
    const text = row.cells[column].dataset.value;
    return text === undefined ? null : Number(text);
  };
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return descending ? y - x : x - y;
  });
  body.replaceChildren(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, place) => {
    if (place === column) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = cell.querySelector("button");
    if (button) button.addEventListener("click", () => sortBy(table, column, cell.getAttribute("aria-sort") !== "descending"));
  });
}
