// Package resident runs turns on agents that live in the session's box, or on the host if the session is
// trusted: one process serves many turns, each of which attaches to it and detaches from it.
//
// It owns what every such agent needs: the attachment to the process (Link), the lines that the
// process may not have received yet (Outbox), the events that wait for the next commit
// (Recorder), the tool uses of the turn (Ledger), its messages and answers (Account), the work
// that runs while the agent's output is read (Decisions), and the order of these steps in a turn
// (Run). The runtimes in claude and acp import it. Each of them is a Dialect: it turns the
// agent's lines into events, and messages and decisions into lines for the agent.
//
// Invariant: a line of the agent counts as taken once its events are committed together with the
// agent's state (HZ-12), and a line is sent to the agent only after the commit that it depends
// on. So the next server finds in the log and the state all it needs to continue with the same
// process, and every tool use of a turn that ended has one outcome.
package resident
