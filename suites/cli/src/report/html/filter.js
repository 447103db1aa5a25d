// Hides cases and claims that do not contain each of the words.
(() => {
  const box = document.querySelector(".filter"), input = box.querySelector("input"), status = box.querySelector("span");
  const all = [...document.querySelectorAll("[data-words]")];
  box.hidden = all.length === 0;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const each of all) each.hidden = !words.every((word) => each.dataset.words.includes(word));
    for (const part of document.querySelectorAll("main section, .area")) {
      const within = [...part.querySelectorAll("[data-words]")];
      part.hidden = within.length > 0 && within.every((each) => each.hidden);
    }
    const cases = all.filter((each) => each.matches(".case"));
    status.textContent = words.length ? `${cases.filter((each) => !each.hidden).length} of ${cases.length} cases` : "";
  });
})();
