(() => {
const make = (name, text = "", attributes = {}) => {
  const element = document.createElement(name);
  element.textContent = text;
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  return element;
};
const own = cell => [...cell.childNodes].filter(node => node.nodeName !== "SMALL")
  .map(node => node.textContent).join(" ").trim();

/* Tables: a click on a heading sorts the rows within their groups. */
const key = cell => {
  const text = cell ? own(cell) : "";
  const number = /^[\u00d7+]?(-?[\d,]*\.?\d+)/.exec(text);
  if (!number) return [/^\u2013?$/.test(text) ? 2 : 1, 0, text];
  const unit = / (ms)\b/.exec(text);
  return [0, number[1].replaceAll(",", "") * (unit ? .001 : 1), text];
};
const compare = (a, b) => a[1] - b[1] || a[2].localeCompare(b[2], "en", {numeric: true});
const next = {ascending: "descending", descending: "none"};
for (const table of document.querySelectorAll(".scroll table")) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
  const rows = [...body.rows];
  if (rows.length < 4) continue;
  const groups = [];
  for (const row of rows) {
    const heading = row.classList.contains("group");
    if (heading || !groups.length) groups.push({heading: heading ? [row] : [], rows: []});
    if (!heading) groups.at(-1).rows.push(row);
  }
  heads.forEach((head, at) => {
    const button = make("button", "", {type: "button"});
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const order = next[head.getAttribute("aria-sort")] || "ascending";
      for (const other of heads) other.setAttribute("aria-sort", other === head ? order : "none");
      const sign = order === "descending" ? -1 : 1;
      for (const {heading, rows} of groups) {
        const sorted = rows.map(row => [key(row.cells[at]), row]);
        if (order !== "none")
          sorted.sort(([a], [b]) => a[0] - b[0] || sign * compare(a, b));
        body.append(...heading, ...sorted.map(pair => pair[1]));
      }
    });
  });
}

/* Records: packed in the page, unpacked when a number is followed. */
const unpack = async packed => {
  const bytes = Uint8Array.from(atob(packed.dataset.packed), c => c.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
};
const unpacked = {};
const block = async (row, open) => {
  const whole = make("details"), cells = [...row.cells].map(own), at = row.dataset.in;
  whole.append(make("summary", `${cells[0]}: ${cells[1]}`));
  whole.open = open;
  unpacked[at] ??= unpack(document.getElementById(at));
  const parts = await unpacked[at].catch(
    error => ({"This browser cannot unpack the record": {[row.id]: `${error}`}}));
  for (const name in parts) {
    const part = parts[name][row.id];
    if (part === undefined) continue;
    const text = typeof part === "string" ? part : JSON.stringify(part, null, 1);
    whole.append(make("h3", name), make("pre", text, {tabindex: 0, "aria-label": name}));
  }
  return whole;
};
const rowsOf = anchors => [...document.querySelectorAll("tr[data-in]")]
  .filter(row => anchors.some(anchor => row.id === anchor || row.id.startsWith(`${anchor}/`)));
const follow = async anchors => {
  const rows = rowsOf(anchors);
  const name = anchors.length < 3 ? anchors.join(" and ").replaceAll("/", ", ")
    : `${rows.length} records`;
  const box = make("dialog", "", {"aria-label": `Record of ${name}`});
  const form = make("form", "", {method: "dialog"});
  form.append(make("button", "Close"));
  box.append(form, make("h2", name));
  for (const row of rows) box.append(await block(row, row === rows[0]));
  document.body.append(box);
  box.addEventListener("close", () => box.remove());
  box.showModal();
};
document.addEventListener("click", event => {
  const link = event.target.closest("a.record");
  if (!link) return;
  const anchors = [link.hash.slice(1), ...(link.dataset.more || "").split(" ")]
    .filter(anchor => anchor).map(decodeURIComponent);
  if (rowsOf(anchors).length) {
    event.preventDefault();
    follow(anchors);
  }
});

/* An address may name a run, or something in a folded part. */
const open = () => {
  const name = decodeURIComponent(location.hash).slice(1);
  const target = name && document.getElementById(name);
  if (!target) return;
  for (let at = target; at; at = at.parentElement?.closest("details")) at.open = true;
  if (target.closest("tr[data-in]")) follow([name]);
  else target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
})()
