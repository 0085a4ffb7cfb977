// Sphinx's own scores, and a preference among equal ones: what to do before what came of it.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score + ({ "how-to": 4, start: 3, explain: 2, reference: 1 }[docname.split("/")[0]] || 0),
  objNameMatch: 30,
  objPartialMatch: 20,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
