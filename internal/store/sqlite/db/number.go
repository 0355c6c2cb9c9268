package db

import "context"

// numberBlock is how many commit numbers the row of the table server reserves at a time. A number is
// given out without a write as long as the block lasts; those left at the end of a server are lost.
const numberBlock = 4096

// numbers gives each change that appends events its commit number, and checkpoints and packs their numbers. The numbers
// rise over the whole database, and none is used twice: the row of the table server holds an upper bound of them, which
// is on disk before a number above the bound before it is.
type numbers struct {
	// last is the newest number, bound the upper bound on disk.
	last, bound int64
}

// open takes the bound that raising the epoch has just reserved a block below.
func (n *numbers) open(bound int64) { n.last, n.bound = bound-numberBlock, bound }

// reserve raises the bound within the open transaction if numbers above it were given out. It returns
// the bound that holds once the transaction is on disk.
func (n *numbers) reserve(ctx context.Context, w *writer) (bound int64, err error) {
	if n.last <= n.bound {
		return n.bound, nil
	}
	bound = n.last + numberBlock
	_, err = w.bound.ExecContext(ctx, bound)
	return bound, err
}

// NextNumber returns the next number, for a change of this transaction. It is above every number before. A change that is
// rolled back leaves a gap.
func (t *Tx) NextNumber() int64 {
	t.numbers.last++
	return t.numbers.last
}
