(() => {
const sheet = this;
const make = (name, text = "", attributes = {}) => {
  const made = document.createElement(name);
  made.textContent = text;
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  return made;
};
const own = cell => [...cell.childNodes].filter(n => n.nodeName !== "SMALL")
  .map(n => n.textContent).join(" ").trim();

/* Tables: rows sort within their group and are found by a word. */
const key = cell => {
  const text = cell ? own(cell) : "";
  const found = /^[\u00d7+]?(-?[\d,]*\.?\d+) ?(ms|s|%|GiB)?$/.exec(text);
  if (found) return [0, found[1].replaceAll(",", "") * (found[2] === "ms" ? .001 : 1), text];
  return [/^[\u2013/]?$/.test(text) ? 2 : 1, 0, text];
};
const compare = (a, b) => a[0] - b[0] || a[1] - b[1] ||
  a[2].localeCompare(b[2], "en", {numeric: true});
const sort = (groups, heads, at) => {
  const next = {ascending: "descending", descending: "none"};
  const order = next[heads[at].getAttribute("aria-sort")] || "ascending";
  heads.forEach((head, place) => head.setAttribute("aria-sort", place === at ? order : "none"));
  for (const group of groups) {
    const sorted = group.rows.map(row => [key(row.cells[at]), row]);
    const sign = order === "descending" ? -1 : 1;
    if (order !== "none") sorted.sort(([a], [b]) => a[0] - b[0] || sign * compare(a, b));
    group.body.append(...(group.head ? [group.head] : []), ...sorted.map(pair => pair[1]));
  }
};
const filter = (groups, wanted, status) => {
  const all = groups.flatMap(group => group.rows), text = wanted.toLowerCase();
  for (const row of all) row.hidden = !row.textContent.toLowerCase().includes(text);
  for (const {head, rows} of groups) if (head) head.hidden = rows.every(row => row.hidden);
  const shown = all.filter(row => !row.hidden).length;
  status.textContent = wanted ? `${shown} of ${all.length} rows` : "";
};
const title = box => {
  let before = box;
  while ((before = before.previousElementSibling)) if (/^H\d$/.test(before.tagName)) break;
  return before ? before.textContent : document.title;
};
const table = box => {
  const heads = [...box.querySelectorAll("thead th")], groups = [];
  const rows = [...box.querySelectorAll("tbody tr")], about = title(box);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", about);
  for (const row of rows) {
    const head = row.classList.contains("group");
    if (head || !groups.length) groups.push({body: row.parentNode, head: head && row, rows: []});
    if (!head) groups.at(-1).rows.push(row);
  }
  if (rows.length < 3) return;
  heads.forEach((head, at) => {
    const button = make("button", "", {type: "button"});
    button.append(...head.childNodes);
    if (!own(button)) button.setAttribute("aria-label", "name of the row");
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(groups, heads, at));
  });
  if (rows.length < 8) return;
  const line = make("div", "", {class: "filter"}), label = make("label", "Filter the rows ");
  const input = make("input", "", {type: "search", "aria-label": `Filter the rows of ${about}`});
  const status = make("span", "", {role: "status"});
  label.append(input);
  line.append(label, status);
  box.before(line);
  input.addEventListener("input", () => filter(groups, input.value, status));
};

/* Records: packed in the page, unpacked when a number is followed. */
const unpack = async packed => {
  const bytes = Uint8Array.from(atob(packed.dataset.packed), c => c.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
};
const unpacked = {};
const block = async (root, row, open) => {
  const whole = make("details"), cells = [...row.cells].map(own);
  whole.append(make("summary", `${cells[0]}: ${cells[1]}`));
  whole.open = open;
  const at = row.dataset.in;
  unpacked[at] ??= unpack(root.querySelector(`#${CSS.escape(at)}`));
  const parts = await unpacked[at].catch(
    error => ({"This browser cannot unpack the record": {[row.id]: `${error}`}}));
  for (const name in parts) {
    const said = parts[name][row.id];
    if (said === undefined) continue;
    const text = typeof said === "string" ? said : JSON.stringify(said, null, 1);
    whole.append(make("h3", name), make("pre", text, {tabindex: 0, "aria-label": name}));
  }
  return whole;
};
const follow = async (root, anchors) => {
  const rows = [...root.querySelectorAll("tr[data-in]")]
    .filter(row => anchors.some(one => row.id === one || row.id.startsWith(`${one}/`)));
  const few = anchors.length < 3;
  const name = few ? anchors.join(" and ").replaceAll("/", ", ") : `${rows.length} records`;
  const box = make("dialog", "", {"aria-label": `Record of ${name}`});
  const form = make("form", "", {method: "dialog"});
  form.append(make("button", "Close"));
  box.append(form, make("h2", name));
  for (const row of rows) box.append(await block(root, row, row === rows[0]));
  const holder = make("div", "", {class: "feedrate", "data-live": "", style: "display:contents"});
  holder.append(...(root.isConnected ? [] : [make("style", sheet.textContent)]), box);
  document.body.append(holder);
  box.addEventListener("close", () => holder.remove());
  box.showModal();
};
const known = (root, anchor) =>
  anchor && root.querySelector(`#${CSS.escape(anchor)}`)?.closest("tr[data-in]");

/* Links: to records of this page; from a table in a frame of Snakemake's report, by the first page
   there, even while that is not shown. Files are beside the report then, not two folders up. */
const go = (root, href, more, event) => {
  const [file, hash] = href.split("#");
  const anchors = [hash, ...more.split(" ")].filter(one => one).map(decodeURIComponent);
  const up = file.startsWith("../"), framed = up && parent !== window;
  if (anchors.length && known(root, anchors[0])) follow(root, anchors);
  else if (framed) parent.postMessage({feedrate: [href, more]}, "*");
  else if (up && (!event || root.parentNode !== document.body))
    make("a", "", {href: file.replace(/^[./]+/, ""), download: ""}).click();
  else return;
  if (event) event.preventDefault();
};
const live = root => {
  root.dataset.live = "";
  root.querySelectorAll(".scroll").forEach(table);
  root.querySelectorAll("th .record").forEach(link => link.closest("tr").classList.add("of"));
  root.addEventListener("click", event => {
    const cell = `${getSelection()}` ? null : event.target.closest("td");
    const link = event.target.closest("a,button,input") || (cell &&
      (cell.querySelector(".record") || cell.parentNode.querySelector("th .record")));
    const href = link && link.getAttribute("href");
    if (href) go(root, href, link.dataset.more || "", event);
  });
  const asked = decodeURIComponent(location.hash).slice(1);
  if (known(root, asked)) follow(root, [asked]);
  window.onmessage = event => {
    const {feedrate: [href, more] = []} = event.data || {};
    if (typeof href === "string") go(root, href, `${more}`);
  };
};
const start = () => document.querySelectorAll(".feedrate:not([data-live])").forEach(live);
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
})()
