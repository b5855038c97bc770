// Questions to the service: sent, waited for, and what goes along with them.

const WAIT = 20; // seconds until the service tells the place in the queue instead of the answer

export async function post(path, body) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** The answer's text, however long it takes; `told` hears of the place in the queue. */
export async function ask(kind, body, told = () => {}) {
  for (;;) {
    const response = await post(`/${kind}?wait=${WAIT}`, body);
    const id = response.headers.get("x-oomcast-question");
    if (response.status === 202) {
      const waiting = await response.json();
      told(waiting.state === "waiting" ? `waiting, place ${waiting.place}` : "being captured");
    } else if (response.ok) {
      return { id, text: await response.text() };
    } else {
      const { error } = await response.json();
      if (response.status !== 503) throw new Error(error);
      told(error);
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}
