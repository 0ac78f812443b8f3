// The address: #/VIEW/RUN?text=…&unit=…, so that a link holds what is seen.

const LONGEST = 1500;  // characters of a text that an address bears
const WAIT = 300;  // milliseconds: a browser refuses to change its address too often

let waiting = null;

export function place() {
  const [path, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const [, view = "", name = ""] = path.split("/");
  return { view, name: decoded(name), params: new URLSearchParams(query) };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {  // a % of somebody's own
    return name;
  }
}

export function address(view, name = "", values = {}) {
  const params = new URLSearchParams(Object.entries(values).filter(([, value]) => holds(value))).toString();
  return `#/${view}/${encodeURIComponent(name)}${params ? `?${params}` : ""}`;
}

const holds = (value) => value !== null && value !== undefined && value !== "" && String(value).length <= LONGEST;

// Keep values in the address of the view that is open; no new entry of the browser's history is made.
export function remember(view, name, values) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const now = place();
    if (now.view === view) history.replaceState(null, "", address(view, name, values));
  }, WAIT);
}

export const forget = () => clearTimeout(waiting);
