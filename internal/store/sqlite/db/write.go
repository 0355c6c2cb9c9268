package db

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Member is the part that a store has in each transaction, to keep its memory in step with the
// database. Only the writer goroutine calls its functions; each may be nil.
type Member struct {
	// Begin runs in the transaction that raises the epoch, which is the first of the server.
	Begin func(*Tx) error
	// Flush writes the rows that the store has gathered in this transaction, before the commit.
	Flush func(*Tx) error
	// Committed runs once the transaction is on disk, before the callers of its Ops get their
	// answers. Undone runs instead if the transaction is rolled back.
	Committed, Undone func()
	// Forget runs at the start of a transaction if another connection may have changed the file.
	// It drops all that the store remembers of the database, which may be outdated.
	Forget func()
}

// writer carries out Ops, several in one transaction, on the only connection that writes.
type writer struct {
	path   string
	clock  func() time.Time
	room   *room
	damage *damage
	// fault is nil except in tests, where its error makes a commit fail.
	fault func() error

	conn                    *sql.Conn
	begin, commit, rollback *sql.Stmt
	server, foreign, bound  *sql.Stmt
	// stmts are all statements prepared on conn, including those of the stores.
	stmts []*sql.Stmt

	epoch   uint64
	numbers numbers
	// version is SQLite's data_version when fence last read it. It changes when another connection writes;
	// until then what the members remember of the database is valid.
	version int64
	members []Member

	queue queue
	// gate is held while a transaction is open. The janitor takes it to keep a busy writer from
	// extending the log while it finishes a checkpoint.
	gate sync.Mutex
}

// do queues an Op and waits for its result. If ctx ends before the writer starts on the Op, do
// withdraws it; after that it waits for the result, because the outcome would otherwise be
// unknown.
func (w *writer) do(ctx context.Context, name string, o *Op) error {
	o.done = make(chan error, 1)
	if !w.queue.put(o) {
		return holdfast.Errorf(holdfast.KindUnavailable, name, "the database is closed")
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
	}
	if o.state.CompareAndSwap(opWaiting, opGivenUp) {
		return Failure(name, context.Cause(ctx))
	}
	return <-o.done
}

// run is the writer goroutine. It ends when the queue is closed and empty.
func (w *writer) run(ctx context.Context) {
	for {
		ops := w.queue.take()
		if ops == nil {
			return
		}
		w.batch(ctx, ops)
	}
}

// batch carries out Ops in one transaction and sends each its result. If the transaction fails, it carries them out
// one by one, unless the disk failed or is full, or another server took over.
func (w *writer) batch(ctx context.Context, ops []*Op) {
	w.gate.Lock()
	defer w.gate.Unlock()
	answers := make([]error, len(ops))
	err := w.transact(ctx, ops, answers)
	switch {
	case err == nil:
	case len(ops) > 1 && !refused(err) && !lost(err) && !w.room.noSpace(err):
		for i := range ops {
			if err := w.transact(ctx, ops[i:i+1], answers[i:i+1]); err != nil {
				answers[i] = w.broke(err)
			}
		}
	default:
		err = w.broke(err)
		for i := range answers {
			answers[i] = err
		}
	}
	for i, o := range ops {
		o.done <- answers[i]
	}
}

// transact runs Ops in one transaction and sets the result of each in answers. If it returns an
// error, nothing is written and answers is not valid.
func (w *writer) transact(ctx context.Context, ops []*Op, answers []error) (err error) {
	if e := w.room.broken.Load(); e != nil {
		return e
	}
	now := w.clock().UTC().Truncate(time.Millisecond)
	t := &Tx{Ctx: ctx, Now: now, NowMS: now.UnixMilli(), Pages: 2, numbers: &w.numbers}
	if _, err := w.begin.ExecContext(ctx); err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended {
			// After some errors SQLite has already rolled back, and this rollback fails.
			_ = w.undo(ctx)
		}
	}()
	if err := w.fence(ctx); err != nil {
		return err
	}
	written := 0
	for i, o := range ops {
		answers[i] = nil
		if o.Plan != nil {
			if err := o.Plan(t); err != nil {
				if !refused(err) {
					return err
				}
				answers[i] = err
				continue
			}
		}
		if err := o.Apply(t); err != nil {
			return err
		}
		written++
	}
	if written == 0 {
		ended = true
		return w.undo(ctx)
	}
	for i := range w.members {
		if flush := w.members[i].Flush; flush != nil {
			if err := flush(t); err != nil {
				return err
			}
		}
	}
	bound, err := w.numbers.reserve(ctx, w)
	if err != nil {
		return err
	}
	if w.fault != nil {
		if err := w.fault(); err != nil {
			return err
		}
	}
	if _, err := w.commit.ExecContext(ctx); err != nil {
		return err
	}
	ended = true
	w.numbers.bound = bound
	for i := range w.members {
		if done := w.members[i].Committed; done != nil {
			done()
		}
	}
	w.room.wrote(t.Pages)
	return nil
}

// undo calls Undone of the members and rolls the open transaction back.
func (w *writer) undo(ctx context.Context) error {
	for i := range w.members {
		if undone := w.members[i].Undone; undone != nil {
			undone()
		}
	}
	_, err := w.rollback.ExecContext(ctx)
	return err
}

// start raises the epoch and calls Begin of the members, all in one transaction. So either all rows with
// which a server begins are written or none.
func (w *writer) start(ctx context.Context) error {
	if err := w.server.QueryRowContext(ctx).Scan(&w.epoch); err != nil {
		return err
	}
	return w.transact(ctx, []*Op{{Apply: func(t *Tx) error {
		var bound int64
		row := w.conn.QueryRowContext(ctx, `UPDATE server SET epoch = epoch + 1, commits = commits + ? WHERE id = 1
			RETURNING epoch, commits`, numberBlock)
		if err := row.Scan(&w.epoch, &bound); err != nil {
			return err
		}
		w.numbers.open(bound)
		for i := range w.members {
			if begin := w.members[i].Begin; begin != nil {
				if err := begin(t); err != nil {
					return err
				}
			}
		}
		return nil
	}}}, []error{nil})
}

// fence checks, within the transaction, whether another connection has written since the last
// check. If so it fails if another server has raised the epoch, and otherwise has the members
// forget what they remember.
func (w *writer) fence(ctx context.Context) error {
	var version int64
	if err := w.foreign.QueryRowContext(ctx).Scan(&version); err != nil {
		return err
	}
	if version == w.version {
		return nil
	}
	var epoch uint64
	if err := w.server.QueryRowContext(ctx).Scan(&epoch); err != nil {
		return err
	}
	if epoch != w.epoch {
		e := holdfast.Errorf(holdfast.KindConflict, "store.commit",
			"another server took over this data directory (its epoch is %d, the epoch of this server is %d)", epoch, w.epoch).
			WithHint("look for the other holdfast server on %s and stop one of the two", w.path)
		w.room.broken.CompareAndSwap(nil, e)
		return e
	}
	w.version = version
	for i := range w.members {
		if forget := w.members[i].Forget; forget != nil {
			forget()
		}
	}
	return nil
}

// broke returns the error for a failed write. If the disk is full, it also refuses all writes until the disk
// has space. If written data may have been lost, it refuses all writes for good.
func (w *writer) broke(err error) error {
	switch {
	case w.room.noSpace(err):
		return w.room.ranOut(err)
	case lost(err):
		return w.room.fail(readOnly(w.path, err))
	}
	if Unreadable(err) {
		w.damage.add("a page that a write had to read")
	}
	return Failure("store.commit", err)
}

// close finalizes the statements and closes the connection. database/sql does not finalize
// statements of a single connection, and a connection with open statements stays open.
func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}
