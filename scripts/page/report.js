// Draws the charts of a report's page, in their order, and lets its legend pick an engine.
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const ink = "var(--ink)", quiet = "var(--ink-2)", grid = "var(--grid)";
  const config = {
    background: null,
    font: "system-ui, sans-serif",
    view: {stroke: null},
    axis: {labelColor: quiet, titleColor: quiet, gridColor: grid, domainColor: quiet, tickColor: quiet, tickSize: 4,
           labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal", titlePadding: 8},
    axisY: {domain: false, ticks: false},
    text: {fill: ink, font: "system-ui, sans-serif"},
  };
  const objects = ({columns, rows}) => rows.map((row) => Object.fromEntries(columns.map((name, i) => [name, row[i]])));
  const data = Object.fromEntries(Object.entries(page.data).map(([name, table]) => [name, objects(table)]));
  const size = {width: "container", autosize: {type: "fit-x", contains: "padding"}};
  const views = [];

  // A table in a specification lists the names of its columns once, for all rows.
  function unpack(node) {
    if (node.data && node.data.values && node.data.values.columns) node.data.values = objects(node.data.values);
    if (node.data && node.data.name) node.data = {values: data[node.data.name]};
    (node.layer || []).forEach(unpack);
    return node;
  }

  function pick(engine) {
    for (const button of document.querySelectorAll(".legend button"))
      button.setAttribute("aria-pressed", String(button.dataset.engine === engine));
    for (const view of views) {
      if (view.signal("picked") !== engine) view.signal("picked", engine).runAsync();
    }
  }

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => pick(button.getAttribute("aria-pressed") === "true" ? null
                                                                                               : button.dataset.engine));
  }

  async function draw() {
    for (const chart of page.charts) {
      const at = document.getElementById(chart.id);
      try {
        const picks = Boolean(chart.spec.params);
        const made = await vegaEmbed(at, {...size, ...unpack(chart.spec)}, {mode: "vega-lite", renderer: "svg", actions: false, config});
        if (picks) views.push(made.view);
      } catch (error) {
        at.textContent = "This chart could not be drawn: " + error.message;
        console.error(chart.id, error);
      }
    }
    document.documentElement.dataset.charts = "drawn";
  }
  draw();
})();
