package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// stop emits the event box.stopped, asks boxd to end everything in the box within grace, and then makes the driver stop
// the box. For a box that does not run it emits no event.
func (l *life) stop(ctx context.Context, ended holdfast.BoxEnded, grace time.Duration) error {
	l.mu.Lock()
	conn, connected, running, frozen, boot := l.conn, l.connected(), l.running, l.frozen, l.boot
	wasMoving := l.moving
	l.moving = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.moving = wasMoving
	}()
	if running {
		ended.Box, ended.Boot = l.id, boot
		// A boxd that does not answer the first request gets no second one.
		if connected {
			if connected = l.checkCounters(ctx, conn); connected {
				ended.Processes = l.processNames(ctx, conn)
			}
		}
		l.backend.emit(Event{Type: holdfast.EventBoxStopped, Box: l.id, Ended: ended})
	}
	if connected {
		// Only processes that run can react to SIGTERM. All of this is courtesy: the driver's
		// Stop is what ends the box.
		if !frozen || l.thaw(ctx, conn) == nil {
			sctx, cancel := context.WithTimeout(ctx, grace+courtesy)
			_, _ = conn.Stop(sctx, wire.StopRequest{GraceMS: grace.Milliseconds(), Reason: ended.Reason})
			cancel()
		}
	}
	_ = l.detach()
	if err := l.backend.driver.Stop(ctx, l.id); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended()
	return nil
}

// processNames lists the processes that end with the box, except idle agents: their end loses
// nothing.
func (l *life) processNames(ctx context.Context, conn *sandbox.Box) []string {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	list, err := conn.Processes(ctx)
	if err != nil {
		return nil
	}
	resting := l.backend.agents(ctx, l.id)
	var out []string
	for _, pr := range list {
		agent := pr.Leader && slices.Contains(resting, pr.Call)
		if pr.State != "Z" && !agent {
			out = append(out, fmt.Sprintf("%d %s", pr.PID, pr.Name))
		}
	}
	return out
}

// hits counts how often a box reached its memory limit and its limit of processes since it started.
type hits struct{ memory, processes int64 }

// checkCounters emits events for the processes of the box that were killed for lack of memory
// since the last check, and for those that could not start because of the limit of processes. It
// returns whether boxd answered.
func (l *life) checkCounters(ctx context.Context, conn *sandbox.Box) bool {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	s, err := conn.Stats(ctx)
	if err != nil {
		return false
	}
	l.mu.Lock()
	was, boot := l.hits, l.boot
	now := hits{max(s.OOMKills, was.memory), max(s.PidsRefused, was.processes)}
	l.hits = now
	l.mu.Unlock()
	tell := func(typ holdfast.EventType, more int64, reason string) {
		if more > 0 {
			l.backend.emit(Event{Type: typ, Box: l.id, Ended: holdfast.BoxEnded{Box: l.id, Boot: boot, Reason: fmt.Sprintf(reason, more)}})
		}
	}
	tell(holdfast.EventBoxOOM, now.memory-was.memory, "%d processes were killed: the box was out of memory")
	tell(holdfast.EventBoxPids, now.processes-was.processes, "%d processes were not started: the box was at its limit of processes")
	return true
}
