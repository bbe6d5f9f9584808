"""Complete pages: their style, and the script that makes them respond. Without the script a page
says the same: tables are tables, and links lead to rows of the page."""

import html

from feedrate.report.markup import join, void

STYLE = """
.feedrate{--ink:#1a1a1a;--soft:#555;--line:#d9d9d9;--blue:#00639c;--red:#a34700;--paper:#fff;
 --panel:#eef5fa;--warn:#fbf1ea;--code:#f4f4f4;color-scheme:light dark;
 max-width:68rem;margin:0 auto;padding:1rem 1.25rem 3rem;color:var(--ink);background:var(--paper);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
 overflow-wrap:break-word}
.feedrate *{box-sizing:border-box}
.feedrate :is(h1,h2,h3,p,li,b,strong,em,label,summary){color:inherit}
.feedrate h1{font-size:1.75rem;line-height:1.2;font-weight:700;margin:.2rem 0 1rem}
.feedrate h2{font-size:1.35rem;line-height:1.25;font-weight:700;margin:2.6rem 0 .6rem;
 padding-top:.9rem;border-top:3px solid var(--ink)}
.feedrate h3{font-size:1.08rem;line-height:1.3;font-weight:700;margin:2rem 0 .35rem}
.feedrate p,.feedrate li{max-width:44rem} .feedrate p{margin:0 0 .7rem}
.feedrate ul{margin:0 0 .9rem;padding-left:1.15rem;list-style:disc}
.feedrate li{margin:.22rem 0;padding:0}
.feedrate li::marker{color:inherit}
.feedrate a{color:var(--blue);text-decoration:underline}
.feedrate a small{display:inline-block;width:100%;text-decoration:none}
.feedrate code,.feedrate pre{font:0.86em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
 color:inherit;overflow-wrap:anywhere;background:var(--code);padding:.05em .25em;border-radius:3px}
.feedrate code::before,.feedrate code::after{content:none}
.feedrate small{display:block;font-size:.88em;line-height:1.35;color:var(--soft);font-weight:400}
.feedrate .kicker{margin:0;color:var(--soft);font-size:.9rem}
.feedrate .answer{max-width:47rem;margin:1rem 0;padding:.9rem 1.1rem;background:var(--panel);
 border-left:6px solid var(--blue)}
.feedrate .answer strong{display:block;font-size:1.3rem;line-height:1.3;font-weight:700}
.feedrate :is(.answer,.minute,.rests) .record{color:inherit;text-decoration-style:dotted}
.feedrate .answer p:last-child{margin:.3rem 0 0}
.feedrate .bad{border-left-color:var(--red);background:var(--warn)}
.feedrate .bad strong{font-size:1.1rem}
.feedrate .answer ul{margin:.3rem 0 0}
.feedrate .minute{border:3px solid var(--ink);padding:.2rem 1.1rem .6rem;margin:1rem 0 2rem}
.feedrate .minute h2{border:0;margin:.5rem 0 .3rem;padding:0}
.feedrate .minute li{margin:.45rem 0;max-width:none}
.feedrate .caption{color:var(--soft);font-size:.88rem;margin:.3rem 0 .6rem}
.feedrate .caption p{margin:0 0 .3rem}
.feedrate figure{max-width:44rem;margin:.6rem 0 1.6rem}
.feedrate img{display:block;width:100%;max-width:44rem;height:auto;margin:0}
.feedrate .scroll{position:relative;overflow-x:auto;margin:.6rem 0 1.2rem;max-width:100%;
 background:linear-gradient(90deg,transparent,var(--paper) 60%) 100% 0/3rem 100% no-repeat local,
 linear-gradient(90deg,transparent,#8888) 100% 0/.8rem 100% no-repeat}
.feedrate table{border-collapse:collapse;font-size:.88rem;line-height:1.4;width:auto;margin:0;
 font-variant-numeric:tabular-nums}
.feedrate th,.feedrate td{padding:.38rem .55rem;text-align:right;vertical-align:top;
 border-bottom:1px solid var(--line);color:var(--ink)}
.feedrate thead th{font-weight:600;vertical-align:bottom;border-bottom:2px solid var(--ink)}
.feedrate th[scope=row],.feedrate thead th:first-child{text-align:left;font-weight:600;
 position:sticky;left:0;background:var(--paper);min-width:7.5rem}
.feedrate td{white-space:nowrap}
.feedrate th small,.feedrate .texts tbody th{overflow-wrap:anywhere}
.feedrate td.text,.feedrate .texts td,.feedrate .texts thead th,.feedrate .last-text td:last-child,
.feedrate .last-text thead th:last-child{text-align:left;white-space:normal}
.feedrate .texts td{min-width:5.5rem}
.feedrate .texts td:last-child,.feedrate .last-text td:last-child{min-width:13rem}
.feedrate .texts td.text,.feedrate .last-text td.text{min-width:0}
.feedrate .group th{text-align:left;font-weight:600;color:var(--soft);padding-top:.9rem}
.feedrate .word{font-style:italic;color:var(--red)}
.feedrate .use th,.feedrate .use td{background:var(--panel)!important;font-weight:600}
.feedrate :is(tr:target th,th :target){background:var(--panel)}
.feedrate .of td{cursor:pointer}
.feedrate thead button{all:unset;cursor:pointer;font:inherit;color:inherit}
.feedrate thead button::after{content:"\\a0\\2195";color:var(--soft);font-weight:400}
.feedrate [aria-sort=ascending] button::after{content:"\\a0\\2191";color:inherit}
.feedrate [aria-sort=descending] button::after{content:"\\a0\\2193";color:inherit}
.feedrate :is(a,button,input,pre,div,figure,summary):focus-visible{outline:3px solid var(--blue)}
.feedrate .filter{display:flex;flex-wrap:wrap;gap:.2rem .8rem;font-size:.88rem;margin-top:.6rem}
.feedrate .filter input{max-width:100%;font:inherit;color:inherit;background:var(--paper);
 border:1px solid var(--soft);border-radius:3px;padding:.1rem .4rem}
.feedrate nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem}
.feedrate .far{content-visibility:auto;contain-intrinsic-size:auto 900px}
.feedrate dialog{width:60rem;max-width:calc(100vw - 1rem);max-height:92vh;overflow:auto;margin:auto;
 color:var(--ink);background:var(--paper);border:2px solid var(--ink);padding:.8rem 1.1rem}
.feedrate dialog::backdrop{background:rgb(0 0 0/.5)}
.feedrate dialog h2{border:0;margin:0 0 .4rem;padding:0;max-width:calc(100% - 5rem)}
.feedrate dialog form{float:right}
.feedrate dialog button{font:inherit;color:inherit;background:var(--code);border:1px solid;
 border-radius:3px;padding:.15rem .7rem;cursor:pointer}
.feedrate dialog summary{font-weight:700;cursor:pointer;margin:.5rem 0}
.feedrate dialog h3{margin:.6rem 0 .2rem;font-size:.95rem}
.feedrate pre{max-height:16rem;overflow:auto;white-space:pre-wrap;margin:0;padding:.5rem}
@media (max-width:40rem){
 .feedrate{padding:.8rem .9rem 3rem;font-size:15px}
 .feedrate h1{font-size:1.4rem}
 .feedrate .answer strong{font-size:1.15rem}
 .feedrate th,.feedrate td{padding:.32rem .5rem}
 .feedrate th[scope=row],.feedrate thead th:first-child{min-width:5.8rem;max-width:9rem}
}
@media screen and (max-width:35.7rem){
 .feedrate figure{overflow-x:auto}
 .feedrate figure>div{width:34rem}
 .feedrate figure::before{content:"Scroll the figure sideways \\2192";position:sticky;left:0;
  display:inline-block;color:var(--soft);font-size:.82rem}
}
@media screen and (prefers-color-scheme:dark){
 .feedrate{--ink:#e8e8e8;--soft:#b3b3b3;--line:#444;--blue:#7cc4f2;--red:#f2a66b;--paper:#161616;
  --panel:#1d2c38;--warn:#38261a;--code:#262626}
 .feedrate img{filter:invert(.914) hue-rotate(180deg)}
 body:has(>.feedrate){background:#161616}
}
@media print{
 .feedrate{max-width:none;padding:0;font-size:10pt}
 .feedrate .far{content-visibility:visible}
 .feedrate .scroll{overflow:visible}
 .feedrate table{font-size:7.5pt;max-width:100%}
 .feedrate th,.feedrate td{padding:.2rem .3rem;white-space:normal;overflow-wrap:anywhere}
 .feedrate :is(.texts,.last-text) td:is(td,:last-child){min-width:0}
 .feedrate th[scope=row],.feedrate thead th:first-child{position:static;min-width:0}
 .feedrate :is(thead th,td:not(.text,.texts td,.last-text td:last-child)){overflow-wrap:break-word}
 .feedrate :is(thead,tr,figure,.answer,.caption){break-inside:avoid}
 .feedrate :is(h2,h3,.caption,thead,.group){break-after:avoid}
 .feedrate img{width:auto;max-width:30rem;max-height:18cm}
 .feedrate :is(nav,.filter,dialog),.feedrate thead button::after{display:none}
 .feedrate thead button{display:contents}
 .feedrate .minute{break-after:page}
}
"""
"""The style of tables and of the overview. Every rule applies inside `.feedrate` only: Snakemake's
report shows these pages inside its own."""

SCRIPT = r"""(() => {
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
})()"""
"""The script of interactive pages. It runs when the style has loaded and not as a script element,
because Snakemake's report keeps pages inside a script element, and inserts them as text."""

OPEN, CLOSE = '<main class="feedrate">', "</main>"


def page(title: str, *content: str | None) -> str:
    """A complete page that needs no other file."""
    style = void("style", onload=SCRIPT)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n{style}{STYLE}</style>\n</head>\n<body>\n"
        f"{OPEN}{join(*content)}{CLOSE}\n</body>\n</html>\n"
    )
