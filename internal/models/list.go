package models

import (
	"context"
	"time"
)

const (
	// listTime is how long a provider may take to list its models.
	listTime = 3 * time.Second
	// listKept is how long a list is cached, failedKept how long a failure to get one is.
	listKept   = 30 * time.Second
	failedKept = time.Second
)

// list caches a provider's list of models. Make one with newList. Safe for concurrent use: callers
// that come while the provider is asked wait for the same answer.
type list struct {
	// turn holds one element while a goroutine uses the list, as a lock that can be waited for with a
	// context.
	turn  chan struct{}
	names []string
	err   error
	until time.Time
}

func newList() *list { return &list{turn: make(chan struct{}, 1)} }

// get returns the names of the models; it asks the provider again if the cached list is too old.
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
		return nil, caller.Err() // the caller gave up: no failure of the provider
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
