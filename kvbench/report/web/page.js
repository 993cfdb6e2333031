(() => {
  "use strict";
  const read = (id) => document.getElementById(id).textContent;
  const figures = JSON.parse(read("figures"));
  const config = JSON.parse(read("config"));
  const root = document.documentElement;

  const objects = ({ columns, rows }) =>
    rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at]])));

  // A legend is set in columns when it is drawn, and does not follow the width of its chart by itself.
  const columns = (place) => Math.max(1, Math.floor((place.clientWidth - 60) / 150));
  const draw = (place) => {
    const name = place.dataset.figure;
    const figure = figures[name];
    const spec = { ...figure.spec, datasets: { ...figure.spec.datasets, [name]: objects(figure) } };
    const legend = { ...config.legend, columns: columns(place) };
    place.dataset.columns = legend.columns;
    vegaEmbed(place, spec, {
      mode: "vega-lite", actions: false, renderer: "svg", tooltip: { theme: "page" }, config: { ...config, legend },
    })
      .then(() => place.setAttribute("data-drawn", ""))
      .catch((error) => {
        place.classList.add("failed");
        place.textContent = `This chart could not be drawn: ${error.message}`;
        console.error(error);
      });
  };
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (Number(target.dataset.columns) !== columns(target)) draw(target);
    }
  });
  for (const place of document.querySelectorAll("[data-figure]")) {
    draw(place);
    resized.observe(place);
  }

  const quoted = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(quoted).join(",") + "\n").join("");

  const save = (name, text, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };

  for (const button of document.querySelectorAll("[data-download]")) {
    const name = button.dataset.download;
    button.addEventListener("click", () => {
      if (name === "manifest") save("manifest.json", read("manifest"), "application/json");
      else save(`${name}.csv`, csv(figures[name]), "text/csv");
    });
  }

  const cell = (row, kind, value) => {
    const made = row.appendChild(document.createElement(kind));
    made.textContent = value === null ? "–" : String(value);
    if (typeof value === "number") made.className = "number";
    return made;
  };
  const fill = (table, { columns, rows }) => {
    const head = table.createTHead().insertRow();
    columns.forEach((column, at) => {
      const made = cell(head, "th", column);
      made.scope = "col";
      if (rows.length && typeof rows[0][at] === "number") made.className = "number";
    });
    const body = table.createTBody();
    for (const row of rows) {
      const made = body.insertRow();
      for (const value of row) cell(made, "td", value);
    }
  };
  for (const details of document.querySelectorAll("details[data-rows]")) {
    const show = () => fill(details.querySelector("table"), figures[details.dataset.rows]);
    details.addEventListener("toggle", show, { once: true });
  }

  const button = document.getElementById("scheme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.scheme ? root.dataset.scheme === "dark" : dark.matches);
  const label = () => (button.textContent = isDark() ? "Light colours" : "Dark colours");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.scheme = isDark() ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  label();
})();
