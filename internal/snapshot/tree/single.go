package tree

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Write fills a new file with the content of a stored one.
func Write(ctx context.Context, src Source, e Entry, to rooted.Handle) error {
	return writeContent(ctx, src, e, to)
}

// Content returns a reader of the content of a stored file, which returns an error if ctx ends.
func Content(ctx context.Context, src Source, e Entry) io.Reader {
	return &reader{ctx: ctx, pieces: newPieces(src, e)}
}
