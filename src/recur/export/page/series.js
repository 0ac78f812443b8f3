// Tables of numbers, dates and their frequency, as recur.data.series reads them.

const SECOND = 1e6, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, WEEK = 7 * DAY;
const MONDAY = 4 * DAY;  // the first of 1970, in microseconds
const MISSING = new Set(["", "na", "nan", "null", "none", "?"]);

const isMissing = (cell) => MISSING.has(cell.toLowerCase());
const numberOf = (cell) => (isMissing(cell) ? NaN : /^[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(cell) ? Number(cell.replaceAll("_", "")) : null);

// Splits lines into cells at commas, semicolons, tabs or spaces; quotes protect a cell.
function parseCells(text) {
  const lines = normalised(text).split("\n").map((line, k) => [k + 1, line]).filter(([, line]) => strip(line));
  const head = lines.slice(0, 20).map(([, line]) => line).join("\n");
  const sign = ["\t", ";", ","].find((one) => head.includes(one));
  return lines.map(([at, line]) => {
    const cells = sign ? (line.match(new RegExp(`("(?:[^"]|"")*"|[^${sign}]*)(?:${sign}|$)`, "g")) || []).map((cell) => cell.replace(new RegExp(`${sign}$`), "")) : splitSpaces(line);
    if (sign && cells.length > 1 && !line.endsWith(sign) && cells.at(-1) === "") cells.pop();
    return { at, cells: cells.map((cell) => strip(cell).replace(/^"(.*)"$/s, "$1").replaceAll('""', '"')) };
  });
}

function utc(year, month, day = 1, hour = 0, minute = 0, second = 0) {
  const when = new Date(0);
  when.setUTCFullYear(year, month - 1, day);
  when.setUTCHours(hour, minute, second);
  return when.getUTCMonth() === month - 1 && when.getUTCDate() === day ? when.getTime() * 1000 : null;
}

// {form, place}: a number, or microseconds since 1970; null if it is not a date.
function parseDate(text) {
  let found;
  if (/^\d{8}$/.test(text)) {
    const place = utc(Number(text.slice(0, 4)), Number(text.slice(4, 6)), Number(text.slice(6)));
    if (place !== null && text.slice(0, 4) !== "0000") return { form: "date", place };
  }
  if (/^[+-]?\d+(\.0*)?$/.test(text)) return Math.abs(Number(text)) <= 2 ** 53 ? { form: "number", place: Number(text) } : null;
  if ((found = /^(\d{4})[-/](\d{1,2})$/.exec(text)) && found[2] >= 1 && found[2] <= 12) return { form: "month", place: utc(Number(found[1]), Number(found[2])) };
  if ((found = /^(\d{4})-?Q([1-4])$/i.exec(text))) return { form: "month", place: utc(Number(found[1]), 3 * found[2] - 2) };
  if ((found = /^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?$/.exec(text))) {
    const [year, month, day, hour, minute, second] = found.slice(1).map((part) => Number(part ?? 0));
    const place = month >= 1 && month <= 12 && hour < 24 && minute < 60 && second < 60 ? utc(year, month, day, hour, minute, second) : null;
    return place === null ? null : { form: text.length <= 10 ? "date" : "time", place };
  }
  return null;
}

const monthOf = (place) => {
  const when = new Date(Math.floor(place / 1000));
  return 12 * (when.getUTCFullYear() - 1970) + when.getUTCMonth();
};
const monthBegin = (month) => utc(1970 + Math.floor(month / 12), (((month % 12) + 12) % 12) + 1) / DAY;
const dayOf = (place) => Math.floor(place / DAY);
const isWorkday = (day) => (((day + 3) % 7) + 7) % 7 < 5;
const businessDay = (place) => {
  const behind = dayOf(place) - 4, weeks = Math.floor(behind / 7);
  return 5 * weeks + Math.min(behind - 7 * weeks, 5);
};
const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return Math.abs(a); };
const differences = (values) => values.slice(1).map((value, k) => value - values[k]);
const common = (values, otherwise = 1) => values.reduce(gcd, 0) || otherwise;

function isSameDay(places) {
  if (places.length < 2) return true;
  const months = places.map(monthOf), first = places[0];
  if (differences(months).some((step) => step <= 0) || places.some((place) => place - dayOf(place) * DAY !== first - dayOf(first) * DAY)) return false;
  const begin = places.map((place, k) => dayOf(place) - monthBegin(months[k])), end = places.map((place, k) => monthBegin(months[k] + 1) - dayOf(place));
  return begin.every((day) => day === begin[0]) || end.every((days) => days === 1);
}

// Frequency: distance between rows.
class Frequency {
  constructor(unit, count, form) { Object.assign(this, { unit, count, form }); }
  static of(places, form) {
    if (form === "number") return new Frequency("steps", common(differences(places)), form);
    const months = differences(places.map(monthOf));
    if ((form === "month" || isSameDay(places)) && (form === "month" || months.length)) return new Frequency("months", common(months), form);
    const step = common(differences(places), DAY), days = places.map(dayOf);
    const skips = days.every(isWorkday) && days.length > 4 && days.at(-1) - days[0] >= 7;
    return step === DAY && skips ? new Frequency("business days", 1, form) : new Frequency("microseconds", step, form);
  }
  // Number of steps from a fixed origin.
  step(place) {
    if (this.unit === "months") return Math.floor(monthOf(place) / this.count);
    if (this.unit === "business days") return Math.floor(businessDay(place) / this.count);
    return this.unit === "steps" ? Math.round(place / this.count) : Math.floor((place - MONDAY) / this.count);
  }
  steps(places) {
    const at = this.unit === "months" ? places.map(monthOf) : this.unit === "business days" ? places.map(businessDay) : places;
    return at.map((place) => Math.floor((place - at[0]) / this.count));
  }
  // Dates of the first row and of the following steps.
  places(first, length) {
    if (this.unit === "months") {
      const month = monthOf(first), into = dayOf(first) - monthBegin(month), last = dayOf(first) + 1 === monthBegin(month + 1) && into > 26;
      return Array.from({ length }, (_, k) => {
        const begin = monthBegin(month + k * this.count), end = monthBegin(month + k * this.count + 1);
        return (last ? end - 1 : Math.min(begin + into, end - 1)) * DAY + (first - dayOf(first) * DAY);
      });
    }
    if (this.unit === "business days") {
      const found = [];
      for (let day = dayOf(first), time = first - dayOf(first) * DAY; found.length < length; day++) if (isWorkday(day)) found.push(day * DAY + time);
      return found;
    }
    return Array.from({ length }, (_, k) => first + k * this.count);
  }
  written(place) {
    if (this.form === "number") return String(place);
    const text = new Date(Math.floor(place / 1000)).toISOString();
    return this.form === "month" ? text.slice(0, 7) : this.form === "date" ? text.slice(0, 10) : text.slice(0, 19).replace("T", " ");
  }
}

const dayOfYear = (place) => dayOf(place) - monthBegin(12 * Math.floor(monthOf(place) / 12));
const modulo = (a, n) => ((a % n) + n) % n;
const CYCLES = {
  "second of minute": [60, (place) => modulo(Math.floor(place / SECOND), 60)],
  "minute of hour": [60, (place) => modulo(Math.floor(place / MINUTE), 60)],
  "hour of day": [24, (place) => modulo(Math.floor(place / HOUR), 24)],
  "day of week": [7, (place) => modulo(Math.floor((place - MONDAY) / DAY), 7)],
  "day of month": [31, (place) => dayOf(place) - monthBegin(monthOf(place))],
  "week of year": [53, (place) => Math.min(Math.floor(dayOfYear(place) / 7), 52)],
  month: [12, (place) => modulo(monthOf(place), 12)],
};

// Parses a name such as `calendar, hour of day sin`.
function calendarColumn(name, places) {
  const [, cycle, part] = /^calendar, (.*) (sin|cos)$/.exec(name), [period, read] = CYCLES[cycle];
  return places.map((place) => Math[part]((2 * Math.PI * read(place)) / period));
}

// Fills gaps with the last value at the same phase of the season, otherwise with the last value.
function fillGaps(values, season) {
  const made = values.slice();
  for (let t = season; t < made.length; t++) if (Number.isNaN(made[t])) made[t] = made[t - season];
  for (let t = 1; t < made.length; t++) if (Number.isNaN(made[t])) made[t] = made[t - 1];
  const first = made.find((value) => !Number.isNaN(value)) ?? 0;
  return made.map((value) => (Number.isNaN(value) ? first : value));
}

class TableError extends Error {
  constructor(name, values = {}) {
    super(name);
    this.values = values;
  }
}

// {names, columns: rows of numbers by column, places, frequency}: from one column of numbers, one line of them, or a CSV.
function readSeries(text, wanted) {
  let lines = parseCells(text);
  if (lines.length === 1 && lines[0].cells.every((cell) => numberOf(cell) !== null)) lines = lines[0].cells.map((cell) => ({ at: 1, cells: [cell] }));
  if (!lines.length) throw new TableError("empty");
  const first = lines[0].cells, hasHeader = lines.length > 1 && first.some((cell) => numberOf(cell) === null && !parseDate(cell));
  const header = hasHeader ? first : null, rows = hasHeader ? lines.slice(1) : lines, width = first.length;
  for (const { at, cells } of rows) if (cells.length !== width) throw new TableError("columns_wrong", { line: at, count: cells.length, least: width });
  const dates = rows.map(({ cells }) => parseDate(cells[0]));
  const dated = width > 1 && dates.every((date) => date && date.form === dates[0].form) && (dates[0].form !== "number" || (header ? !wanted.includes(header[0]) : width > wanted.length))
    && differences(dates.map((date) => date.place)).every((step) => step > 0);
  const names = header ? header.slice(dated ? 1 : 0) : first.slice(dated ? 1 : 0).map((_, k) => wanted[k] ?? String(k + 1));
  const read = names.map((_, k) => rows.map(({ at, cells }) => {
    const value = numberOf(cells[k + (dated ? 1 : 0)]);
    if (value === null) throw new TableError("not_number", { line: at, value: cells[k + (dated ? 1 : 0)] });
    return value;
  }));
  if (!dated) return { names, columns: read, places: null, frequency: null };
  const places = dates.map((date) => date.place), frequency = Frequency.of(places, dates[0].form), steps = frequency.steps(places);
  const length = steps.at(-1) + 1;
  const columns = read.map((values) => {
    const whole = new Array(length).fill(NaN);
    steps.forEach((step, k) => { whole[step] = values[k]; });
    return whole;
  });
  return { names, columns, places: frequency.places(places[0], length), frequency };
}

// Forecaster: reads a table, returns quantiles of the forecast for each column.
class SeriesForecaster {
  constructor(model, about) {
    this.model = model;
    this.settings = about.settings;
    this.inputs = names(about, "forecast").inputs;
    this.width = names(about, "forecast").shapes.values[2];
  }
  // [{name, past, quantiles: steps of levels, dates}], one per variable.
  forecast(text, chosen = null) {
    const { targets, series, horizon, season, least, known, past, positive } = this.settings;
    const table = readSeries(text, targets), column = (name) => table.columns[table.names.indexOf(name)];
    const beside = [...known, ...past].filter((name) => name.startsWith("covariate ")).map((name) => name.slice(10));
    if (beside.some((name) => !column(name))) throw new TableError("other_columns", { names: beside.join(", ") });
    if (this.inputs.includes("calendar") && !table.frequency?.form) throw new TableError("needs_dates");
    const candidates = table.names.filter((name) => !beside.includes(name));
    const byName = targets.every((name) => candidates.includes(name));
    const own = this.width > 1 ? [byName ? targets : candidates.slice(0, this.width)] : candidates.map((name) => [name]);
    if (!own[0]?.length || own[0].length < this.width) throw new TableError("other_columns", { names: targets.join(", ") });
    return own.flatMap((group) => {
      const there = group.map(column), T = there[0].findLastIndex((_, t) => there.some((values) => !Number.isNaN(values[t]))) + 1;
      const first = there[0].findIndex((_, t) => there.some((values) => !Number.isNaN(values[t])));
      const values = there.map((own) => fillGaps(own.slice(first, T), season)), length = T - first;
      if (length < least) throw new TableError("too_few", { count: length, least });
      if (positive && values.some((own) => own.some((value) => value <= 0))) throw new TableError("not_positive");
      const places = table.frequency ? table.frequency.places(table.places[first], length + horizon) : null;
      const inputs = { values: Array.from({ length: length * this.width }, (_, k) => values[k % this.width][Math.floor(k / this.width)]) };
      if (this.inputs.includes("start")) inputs.start = [table.frequency ? table.frequency.step(places[0]) : first];
      if (this.inputs.includes("series")) {
        const at = series.findIndex((name) => name === group[0] || name.endsWith(`/${group[0]}`));
        inputs.series = [chosen ?? (at < 0 ? 0 : at)];
      }
      const beyond = (name) => {
        const given = column(name).slice(first), last = given.findLastIndex((value) => !Number.isNaN(value)) + 1;
        if (last < length + horizon) throw new TableError("no_future", { name, count: Math.max(last - length, 0), horizon });
        const own = fillGaps(given, 1);
        return Array.from({ length: length + horizon }, (_, t) => own[Math.min(t, own.length - 1)]);
      };
      const ahead = (prefix, make) => {
        const made = known.filter((name) => name.startsWith(prefix)).map(make);
        return Array.from({ length: made.length * (length + horizon) }, (_, k) => made[k % made.length][Math.floor(k / made.length)]);
      };
      if (this.inputs.includes("covariates")) inputs.covariates = ahead("covariate ", (name) => beyond(name.slice(10)));
      if (this.inputs.includes("calendar")) inputs.calendar = ahead("calendar,", (name) => calendarColumn(name, places));
      if (this.inputs.includes("past")) {
        const made = past.filter((name) => name !== "gaps").map((name) => fillGaps(column(name.slice(10)).slice(first, T), 1));
        inputs.past = Array.from({ length: made.length * length }, (_, k) => made[k % made.length][Math.floor(k / made.length)]);
      }
      const { quantiles } = this.model.run("forecast", inputs), Q = this.settings.quantiles.length;
      return group.map((name, v) => ({
        name, past: values[v], dates: places?.map((place) => table.frequency.written(place)) ?? null,
        quantiles: Array.from({ length: horizon }, (_, k) => Array.from(quantiles.slice((k * this.width + v) * Q, (k * this.width + v + 1) * Q))),
      }));
    });
  }
}

// Parses rows of D numbers, one step per line.
function readRows(text, D) {
  const lines = parseCells(text);
  if (!lines.length) throw new TableError("empty");
  const rows = lines.filter(({ cells }, k) => k || cells.every((cell) => numberOf(cell) !== null));
  return rows.map(({ at, cells }) => {
    if (cells.length !== D) throw new TableError("columns_wrong", { line: at, count: cells.length, least: D });
    return cells.map((cell) => {
      const value = numberOf(cell);
      if (value === null || Number.isNaN(value)) throw new TableError("not_number", { line: at, value: cell });
      return value;
    });
  });
}

// Stacks every `stack` steps to one, padding with the last step.
function stacked(rows, stack) {
  const made = [...rows];
  while (made.length % stack) made.push(made.at(-1));
  return made.flat();
}

// CTC greedy decoding: labels of the most likely path without repeats and blanks.
function bestPath(logits, K, blank) {
  const found = [];
  for (let t = 0, before = blank; t * K < logits.length; t++) {
    const k = largest(logits.subarray(t * K, (t + 1) * K));
    if (k !== blank && k !== before) found.push(k);
    before = k;
  }
  return found;
}
