// Package resident runs turns on agents that live in the session's box: one process
// for many turns, which a turn attaches to and lets go of.
//
// It owns what every such agent needs: the attachment to the process (Link), the lines
// that the process may not have taken yet (Outbox), what waits for the next commit
// (Recorder), the tool uses of the turn (Ledger), its messages and answers (Account),
// the work that runs while the agent is read (Decisions), and the order in which a turn
// goes through them (Run). The runtimes in claude and acp import it. Each of them is a
// Dialect: it turns the agent's lines into facts, and facts into lines for the agent.
//
// Invariant: a line of the agent counts as taken when the events that it produced are
// committed together with the agent's state (HZ-12), and nothing is sent to the agent
// before the commit that it depends on. So the next server finds in the log and in the
// state what it needs to go on with the same process, and every tool use of a turn that
// ended has one answer.
package resident
