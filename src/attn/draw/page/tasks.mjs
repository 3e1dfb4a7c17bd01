// Divides work into tasks of the browser, so that the page stays responsive.

/** The next task of the page, after input that waits. Timers would wait for the end of a document that is being read. */
export const nextTask = () => new Promise(resume => {
  const {port1, port2} = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    resume(null);
  };
  port2.postMessage(null);
});

/** Ends the task if it has taken long, so that the browser can handle input. */
export class Pauses {
  constructor() { this.start = performance.now(); }
  async pause() {
    if (performance.now() - this.start < 12) return;
    await nextTask();
    this.start = performance.now();
  }
}
