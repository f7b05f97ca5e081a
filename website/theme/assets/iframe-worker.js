// Search costs nothing until somebody searches: its index and its worker are loaded then, not with the page.
{
  const searched = new Promise((resolve) => {
    if (new URLSearchParams(location.search).has("q")) resolve();
    addEventListener("focusin", (event) => event.target.matches(".md-search__input") && resolve());
    addEventListener("change", (event) => event.target.id === "__search" && resolve());
  });
  const { open, send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this.waits = String(url).endsWith("/search_index.json");
    open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (body) {
    if (this.waits) searched.then(() => send.call(this, body));
    else send.call(this, body);
  };

  // A page that was opened from a folder may start no worker: there its script runs in a hidden frame.
  const inFrame = (url, hear) =>
    new Promise((resolve) => {
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      frame.onload = () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => hear(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => resolve((data) => inside.dispatchEvent(new MessageEvent("message", { data })));
        inside.document.head.append(script);
      };
      document.body.append(frame);
    });
  const inWorker = async (url, hear) => {
    const worker = new Begun(url);
    worker.onmessage = hear;
    return (data) => worker.postMessage(data);
  };
  const Begun = window.Worker;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.url = String(url);
    }
    postMessage(data) {
      const hear = (event) => this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      this.tell ??= searched.then(() => (location.protocol === "file:" ? inFrame : inWorker)(this.url, hear));
      this.tell.then((tell) => tell(data));
    }
  };
}
