// The visitor's own log: dropped or chosen, previewed, mapped, read, and used only after the result of reading is shown.
"use strict";
window.fleetlab.uploads = () => {
  const { $, el, ask, Operation, Refused, busy, progressed, idle, say, trouble, take, options } = window.fleetlab.page;
  const pending = { files: [], upload: "", preview: null };
  const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
  const format = () => options.formats.find((one) => one.name === $("format").value);

  function showFormat() {
    const f = format();
    $("expects").textContent = `Expected: ${f.expects}. At most ${options.limits.upload_bytes / 2 ** 20} MiB.`;
    $("zone-row").hidden = !f.options.includes("zone");
    $("map-row").hidden = !f.options.includes("map");
    showPreview();
  }
  $("format").replaceChildren(...options.formats.map((f) => el("option", { value: f.name }, f.title)));
  $("format").value = "csv";
  $("format").addEventListener("change", showFormat);

  // --- the map: the text is what is sent; the menus above the columns write into it ---
  const lines = () => $("map").value.split("\n").filter((line) => line.includes("=")).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);
  const write = (pairs) => { $("map").value = pairs.map(([target, text]) => `${target}=${text}`).join("\n"); };
  const MILLI = ["gpu_milli", "cpu_milli"];
  const NONE = "''"; // there is no such column, whatever the names say
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const uses = (text, spelled) => new RegExp(`(^|[^\\w\`])${escaped(spelled)}($|[^\\w\`])`).test(text);
  function targetOf(spelled) {
    return lines().find(([, text]) => uses(text, spelled))?.[0] ?? "";
  }
  function choose(spelled, target) {
    const guessed = pending.preview.map;
    const kept = lines().filter(([name, text]) => name !== target && !uses(text, spelled));
    if (target) kept.push([target, guessed[target] && uses(guessed[target], spelled) ? guessed[target] : `${spelled}${MILLI.includes(target) ? "*1000" : ""}`]);
    const named = new Set(kept.map(([name]) => name));
    write([...kept, ...Object.keys(guessed).filter((name) => !named.has(name)).map((name) => [name, NONE])]);
    showPreview();
  }
  function showPreview() {
    const p = pending.preview;
    if (!p) return;
    const mapped = p.spelled.length && format().options.includes("map");
    $("no-gpus").hidden = !mapped || lines().some(([name, of]) => /^gpu_(milli|types)$/.test(name) && of !== NONE);
    const heads = p.header.map((name, k) => {
      if (!mapped) return el("th", { scope: "col" }, name);
      const select = el("select", {}, el("option", { value: "" }, "not used"), ...p.targets.map((target) => el("option", { value: target }, target)));
      select.value = targetOf(p.spelled[k]);
      select.setAttribute("aria-label", `${name} becomes`);
      select.addEventListener("change", () => { choose(p.spelled[k], select.value); $("preview").tHead.querySelectorAll("select")[k].focus(); });
      return el("th", { scope: "col" }, el("div", {}, name), select);
    });
    $("preview").tHead.replaceChildren(el("tr", {}, ...heads));
    $("preview").tBodies[0].replaceChildren(...p.rows.map((row) => el("tr", {}, ...p.header.map((_, k) => el("td", {}, row[k] ?? "")))));
  }
  $("map").addEventListener("change", showPreview);

  // --- sending ---
  async function send() {
    let upload = "";
    for (const file of pending.files) {
      say(`Uploading ${file.name}`);
      const message = await ask(`/api/uploads?${new URLSearchParams({ name: file.name, ...(upload ? { upload } : {}) })}`,
        { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
      upload = message.upload;
    }
    pending.upload = upload;
  }
  async function work(question, what) {
    const operation = new Operation(question, progressed);
    busy(operation, what);
    return operation.over;
  }
  function close() {
    $("upload").hidden = true;
    $("confirm").hidden = true;
    for (const id of ["files", "folder"]) $(id).value = "";
    Object.assign(pending, { files: [], upload: "", preview: null });
  }
  // A zip holds files, deflated or as they are: they are taken out here, and sent one by one.
  const MOST_FILES = 64;
  async function unzip(file) {
    const bytes = new DataView(await file.arrayBuffer());
    const cannot = (error) => new Refused({ error: `${file.name}: ${error}`, hint: "unpack it, and drop its files or its folder" });
    let end = bytes.byteLength - 22;
    while (end >= 0 && bytes.getUint32(end, true) !== 0x06054b50) end--;
    if (end < 0) throw cannot("not a whole zip");
    const count = bytes.getUint16(end + 10, true);
    if (count > 4 * MOST_FILES) throw cannot(`${count.toLocaleString("en")} files are too many`);
    const found = [];
    for (let k = 0, at = bytes.getUint32(end + 16, true); k < count; k++) {
      const [flags, how, size, name, extra, comment, head] = [bytes.getUint16(at + 8, true), bytes.getUint16(at + 10, true), bytes.getUint32(at + 20, true),
        bytes.getUint16(at + 28, true), bytes.getUint16(at + 30, true), bytes.getUint16(at + 32, true), bytes.getUint32(at + 42, true)];
      const path = new TextDecoder().decode(new Uint8Array(bytes.buffer, at + 46, name));
      at += 46 + name + extra + comment;
      if (path.endsWith("/") || path.includes("__MACOSX/") || path.split("/").pop().startsWith(".")) continue;
      if (flags & 1 || ![0, 8].includes(how)) throw cannot("encrypted, or packed in a way that is not read here");
      const from = head + 30 + bytes.getUint16(head + 26, true) + bytes.getUint16(head + 28, true);
      const packed = new Blob([new Uint8Array(bytes.buffer, from, size)]);
      const content = how ? await limited(packed.stream().pipeThrough(new DecompressionStream("deflate-raw")), cannot) : packed;
      found.push(new File([content], path.split("/").pop()));
    }
    if (!found.length) throw cannot("no file in it");
    return found;
  }
  async function limited(stream, cannot) {
    const [parts, reader] = [[], stream.getReader()];
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts);
      size += value.length;
      if (size > options.limits.upload_bytes) throw cannot(`a file in it is larger than ${options.limits.upload_bytes >> 20} MiB`);
      parts.push(value);
    }
  }
  // What was dropped: files, and those in folders.
  async function inside(entries) {
    const found = [];
    for (const entry of entries) {
      if (entry.isFile) found.push(await new Promise((done, fail) => { entry.file(done, fail); }));
      else if (entry.isDirectory) {
        const reader = entry.createReader();
        for (let more; (more = await new Promise((done, fail) => { reader.readEntries(done, fail); })).length;) found.push(...await inside(more));
      }
      if (found.length > 4 * MOST_FILES) break;
    }
    return found;
  }
  async function look(chosen) {
    let files = [...chosen].filter((file) => !file.name.startsWith(".")); // a list of its own: that of the field is emptied
    if (!files.length) return;
    trouble(null);
    close();
    try {
      files = (await Promise.all(files.map((file) => (/\.zip$/i.test(file.name) ? unzip(file) : [file])))).flat();
      if (files.length > MOST_FILES) throw new Refused({ error: `${files.length} files: a log has at most ${MOST_FILES}`, hint: "drop the files of one log, such as those that `fleetlab collect` writes" });
      pending.files = files;
      await send();
      const preview = await work({ kind: "preview", upload: pending.upload }, "Looking at the log");
      if (!preview) { pending.upload = ""; idle("Cancelled; the upload is deleted."); return; }
      pending.preview = preview;
      const known = preview.formats.map((name) => options.formats.find((f) => f.name === name)).filter(Boolean);
      $("upload-name").textContent = files.length > 1 ? `${files[0].name} and ${files.length - 1} more` : files[0].name;
      $("looks-like").textContent = known.length ? `It looks like: ${known.map((f) => f.title).join("; or ")}.${preview.note ? ` ${preview.note}` : ""}` : `No format was recognized: choose one. ${preview.note}`;
      if (known.length) $("format").value = known[0].name;
      write(Object.entries(preview.map));
      showFormat();
      $("upload").hidden = false;
      idle("Check format and columns, then read it.");
      $("upload").focus();
      $("upload").scrollIntoView({ block: "start" });
    } catch (error) { pending.upload = ""; trouble(error); }
  }
  for (const id of ["files", "folder"]) $(id).addEventListener("change", () => look($(id).files));
  const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => { if (carries(event)) { event.preventDefault(); document.body.classList.add("dropping"); } });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!carries(event)) return;
    event.preventDefault();
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (entries.some((entry) => entry.isDirectory)) inside(entries).then(look, trouble); else look(event.dataTransfer.files);
  });
  $("forget").addEventListener("click", () => { discard(); });

  // --- reading: a log is used only once the visitor has seen how it was read ---
  async function discard(trace = pending.upload && `upload:${pending.upload}`) {
    close();
    try {
      if (trace) await ask(`/api/uploads/${trace.slice("upload:".length)}`, { method: "DELETE" });
      idle("The upload is deleted.");
    } catch (error) { trouble(error); }
  }
  function confirmed(result) {
    $("read-counts").textContent = `${result.title}: ${count(result.jobs, "job")}, ${count(result.rejects, "row")} rejected.`;
    $("rejects").hidden = !result.rejects;
    $("reject-reasons").replaceChildren(...result.reject_reasons.map((r) => el("li", {}, `${r.reason}: ${count(r.rows, "row")}`)));
    $("rejected").tBodies[0].replaceChildren(...result.rejected.map((r) => el("tr", {}, el("td", {}, r.file), el("td", {}, r.line.toLocaleString("en")), el("td", {}, r.reason))));
    $("read-notes").replaceChildren(...result.notes.map((line) => el("li", {}, line)));
    $("use").onclick = async () => {
      $("sending").open = false;
      close();
      options.traces.push({ trace: result.trace, title: `${result.title}, ${count(result.jobs, "job")}` });
      try { await take(result.trace); } catch (error) { trouble(error); }
    };
    $("discard").onclick = () => discard(result.trace);
    $("confirm").hidden = false;
    $("confirm").focus();
    $("confirm").scrollIntoView({ block: "nearest" });
  }
  $("send").addEventListener("click", async () => {
    $("confirm").hidden = true;
    $("send").disabled = true;
    trouble(null);
    try {
      if (!pending.files.length) throw new Refused({ error: "no file is chosen", hint: "choose the file, or the files, of one log" });
      if (!pending.upload) await send(); // one that could not be read is deleted
      const f = format();
      const question = { kind: "read", upload: pending.upload, format: f.name };
      if (f.options.includes("zone") && $("zone").value.trim()) question.zone = $("zone").value.trim();
      if (f.options.includes("map") && lines().length) question.map = Object.fromEntries(lines());
      pending.upload = "";
      const result = await work(question, "Reading");
      if (!result) { idle("Cancelled; the upload is deleted."); return; }
      idle("Read: check how, then use it.");
      confirmed(result);
    } catch (error) { trouble(error); } finally { $("send").disabled = false; }
  });
};
