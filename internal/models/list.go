package models

import (
	"context"
	"time"
)

const (
	// listTime is how long a provider may take to say which models it has.
	listTime = 3 * time.Second
	// listKept is how long that is believed, and failedKept how long a failure is.
	listKept   = 30 * time.Second
	failedKept = time.Second
)

// list is what a provider said last of its models. Make one with newList. Safe for
// concurrent use: the callers that come while it is asked wait for the same answer.
type list struct {
	// turn is held by whoever looks or asks.
	turn  chan struct{}
	names []string
	err   error
	until time.Time
}

func newList() *list { return &list{turn: make(chan struct{}, 1)} }

// get returns the names, asked anew when what is kept is too old.
func (l *list) get(caller context.Context, ask func(context.Context) ([]string, error)) ([]string, error) {
	ctx, cancel := context.WithTimeout(caller, listTime)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	if time.Now().Before(l.until) {
		return l.names, l.err
	}
	names, err := ask(ctx)
	if caller.Err() != nil {
		return nil, caller.Err() // it says nothing of the provider
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	l.names, l.err, l.until = names, err, time.Now().Add(listKept)
	if err != nil {
		l.until = time.Now().Add(failedKept)
	}
	return names, err
}
