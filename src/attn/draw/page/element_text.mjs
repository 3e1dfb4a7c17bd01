// The text of elements of a document that the browser may still be reading.

/** Returns a function that waits for the text of an element, which is complete if another follows it. @returns {(id: string) => Promise<string>} */
export function textReader() {
  /** Called when the browser has read more of the page. @type {(() => void)[]} */
  const waiting = [];
  const resumeAll = () => { for (const resume of waiting.splice(0)) resume(); };
  const reading = new MutationObserver(resumeAll);
  reading.observe(document.body, {childList: true});
  document.addEventListener('DOMContentLoaded', () => { reading.disconnect(); resumeAll(); });
  return async id => {
    while (document.readyState === 'loading' && !document.getElementById(id)?.nextElementSibling)
      await new Promise(resume => { waiting.push(() => resume(null)); });
    return document.getElementById(id)?.textContent ?? '';
  };
}
