/* Search without a server: a browser starts no worker from a file, so one that is asked for lives in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script>
        var postMessage = data => parent.dispatchEvent(new MessageEvent("recur-worker", { data }));
        var importScripts = (...all) => all.reduce((before, src) => before.then(() => new Promise(done => {
          const script = document.createElement("script");
          script.src = src; script.onload = done; document.body.appendChild(script);
        })), Promise.resolve());
      <\/script><script src="${url}"><\/script>`;
      const hear = ({ data }) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      window.addEventListener("recur-worker", hear);
      document.body.appendChild(this.frame);
      this.ready = new Promise(done => this.frame.addEventListener("load", done, { once: true }));
    }
    postMessage(data) {
      this.ready = this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
}
