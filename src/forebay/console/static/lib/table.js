// Lists. The server searches, sorts and cuts them into pages; the address says how.
import { html } from "./dom.js";
import { route, setQuery } from "./router.js";
import { Empty, Loaded } from "./ui.js";
import { count } from "./format.js";

/**
 * columns: [{key, title, render(row), sort, number, wide}]. `sort` (true) makes the title a button; `number`
 * aligns right; `wide` columns are hidden on a phone. data: {rows, total, page, pages, sort}.
 */
export function Table({ columns, data, keyOf, empty = "Nothing here.", label }) {
  const sorted = data.sort ?? "";
  const column = sorted.replace(/^-/, "");
  const down = sorted.startsWith("-");
  if (!data.rows.length) return typeof empty === "string" ? html`<${Empty} title=${empty} />` : empty;
  return html`<div class="table-frame" tabindex="0" role="region" aria-label=${label}>
      <table>
        <thead>
          <tr>
            ${columns.map((each) => {
              const active = each.sort && column === each.key;
              const next = active ? (down ? each.key : `-${each.key}`) : each.number ? `-${each.key}` : each.key;
              return html`<th
                scope="col"
                class=${cellClass(each)}
                aria-sort=${active ? (down ? "descending" : "ascending") : undefined}
                key=${each.key}
              >
                ${each.sort
                  ? html`<button type="button" class="sort" onClick=${() => setQuery({ sort: next, page: "" })}>
                      ${each.title}<span aria-hidden="true" class="arrow">${active ? (down ? "↓" : "↑") : ""}</span>
                    </button>`
                  : each.title}
              </th>`;
            })}
          </tr>
        </thead>
        <tbody>
          ${data.rows.map(
            (row, at) => html`<tr key=${keyOf ? keyOf(row) : at}>
              ${columns.map((each) => html`<td class=${cellClass(each)} key=${each.key}>${each.render(row)}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <${Pages} data=${data} />`;
}

function cellClass(column) {
  return [column.number ? "number" : "", column.wide ? "wide-only" : ""].filter(Boolean).join(" ");
}

export function Pages({ data }) {
  if (!data.pages || data.pages <= 1) return null;
  const first = (data.page - 1) * data.size + 1;
  const last = Math.min(data.total, data.page * data.size);
  const to = (page) => setQuery({ page: page === 1 ? "" : page }, { replace: false });
  return html`<nav class="pages" aria-label="Pages">
    <button type="button" class="button" disabled=${data.page <= 1} onClick=${() => to(data.page - 1)}>Back</button>
    <span>${count(first)} to ${count(last)} of ${count(data.total)}</span>
    <button type="button" class="button" disabled=${data.page >= data.pages} onClick=${() => to(data.page + 1)}>Next</button>
  </nav>`;
}

/** A whole list: state of `useData`, and what a Table needs. */
export function List({ state, ...table }) {
  return html`<${Loaded} state=${state} rows=${8}>${(data) => html`<${Table} data=${data} ...${table} />`}<//>`;
}

/** The parameters of a list in the address, for `useData`. */
export function listParams(more = {}) {
  const { search, sort, page, size } = route.value.query;
  return { search, sort, page, size, ...more };
}
