// Each chart has, for every curve, its places in the picture and on the axis, the means, and with
// several seeds the least and the largest value.
for (const section of document.querySelectorAll("section.charts")) {
  const boxes = [...section.querySelectorAll("input[data-curve]")];
  const names = boxes.map(box => box.parentElement.textContent.trim());
  const refreshes = [...section.querySelectorAll(".chart")].map(chart => {
    const picture = chart.querySelector("svg"), shown = chart.querySelector("output");
    const line = chart.querySelector("line.at");
    const curves = JSON.parse(chart.querySelector("script").textContent);
    let at = null; // where the values are read, in the units of the picture
    const visible = () => curves.map((_, curve) => curve).filter(curve => boxes[curve].checked);
    const places = () => [...new Set(visible().flatMap(curve => curves[curve][0]))]
      .filter(place => place !== null).sort((a, b) => a - b);
    const nearest = (all, place) => all.reduce((best, one, index) =>
      one !== null && (best < 0 || Math.abs(one - place) < Math.abs(all[best] - place))
        ? index : best, -1);
    const text = number => number === null ? "not finite" : String(Number(number.toPrecision(4)));
    const refresh = () => {
      const all = places();
      shown.hidden = at === null || all.length === 0;
      line.setAttribute("visibility", shown.hidden ? "hidden" : "visible");
      if (shown.hidden) return;
      const place = all[nearest(all, at)];
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      shown.style.left = place > 285 ? "13%" : "52%";
      const rows = visible().map(curve => {
        const [where, across, mean, low, high] = curves[curve];
        const index = nearest(where, place);
        const row = document.createElement("div");
        if (index < 0) return row;
        const range = low ? ` (${text(low[index])} to ${text(high[index])})` : "";
        row.textContent = `${text(across[index])}: ${names[curve]} ${text(mean[index])}${range}`;
        row.style.borderColor =
          boxes[curve].parentElement.querySelector("line").getAttribute("stroke");
        return row;
      });
      shown.replaceChildren(...rows);
    };
    const read = place => { at = place; refresh(); };
    picture.addEventListener("pointermove", event => {
      const box = picture.getBoundingClientRect();
      read((event.clientX - box.left) / box.width * 520);
    });
    picture.addEventListener("pointerleave", () => read(null));
    picture.addEventListener("blur", () => read(null));
    picture.addEventListener("keydown", event => {
      const all = places(), last = all.length - 1;
      const now = at === null ? -1 : nearest(all, at);
      const next = { ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0),
                     Home: 0, End: last }[event.key];
      if (event.key === "Escape") read(null);
      if (next === undefined || last < 0) return;
      event.preventDefault();
      read(all[next]);
    });
    return refresh;
  });
  for (const box of boxes) box.addEventListener("change", () => {
    for (const curve of section.querySelectorAll(`g[data-curve="${box.dataset.curve}"]`))
      curve.style.display = box.checked ? "" : "none";
    for (const refresh of refreshes) refresh();
  });
}
