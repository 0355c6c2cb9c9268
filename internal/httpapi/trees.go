package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

type treeInput struct {
	SessionInput
	plain
}

type unpackInput struct {
	SessionInput
	plain
	Name string `query:"as" doc:"If the path is a directory, the archive becomes this entry of it; absent: it goes into the directory itself."`
	Into bool   `query:"into" doc:"The path is a directory, which is made if it does not exist."`
	File bool   `query:"file" doc:"The archive is one file or link."`
}

type copiedOutput struct {
	Body struct {
		Copied holdfast.Copied       `json:"copied"`
		Kept   holdfast.CheckpointID `json:"kept_checkpoint_id,omitempty" doc:"What a restore of files overwrote, in a workspace that is not the session's alone."`
	}
}

type diffInput struct {
	SessionInput
	plain
	From   string `query:"from" doc:"The older side: a checkpoint, a turn, or start for the first checkpoint; absent: the checkpoint before the newer side."`
	To     string `query:"to" doc:"The newer side: a checkpoint or a turn; absent: the newest checkpoint."`
	Home   bool   `query:"home" doc:"Show the agent's home directory too, under names that begin with ~/."`
	Format string `query:"format" enum:"patch,stat,names" doc:"patch: for git apply; stat: a line for each file; names: names alone; absent: patch."`
}

const tarType = "application/x-tar"

func (a *API) treeRoutes() {
	const tag, root, one = "files", "/v1/sessions/{id}/tree", "/v1/sessions/{id}/tree/{path...}"
	tar := func(doc string) *huma.RequestBody {
		return &huma.RequestBody{Description: doc, Required: true, Content: map[string]*huma.MediaType{tarType: spec.Binary()}}
	}
	for _, at := range []struct{ path, id string }{{root, "read-tree"}, {one, "read-subtree"}} {
		read := route(http.MethodGet, at.path, at.id, tag, "Read a file, or a directory with all that is in it, as a tar archive")
		read.Description = "A directory's own entry, `./`, is the first. What was left out is in the record HOLDFAST.left of a last, global header."
		read.Responses = map[string]*huma.Response{"200": {Description: "The archive.", Content: map[string]*huma.MediaType{tarType: spec.Binary()}}}
		if at.path == one {
			read.Parameters = spec.FilePath()
		}
		handleOne(a, read, a.readTree)
	}
	for _, at := range []struct{ path, id string }{{root, "write-tree"}, {one, "write-subtree"}} {
		write := route(http.MethodPut, at.path, at.id, tag, "Unpack a tar archive into the files, whole or not at all")
		write.MaxBodyBytes = a.maxTar()
		write.RequestBody = tar("A tar archive, not compressed, of files, directories and links.")
		if at.path == one {
			write.Parameters = spec.FilePath()
		}
		handleOne(a, write, a.writeTree)
	}
	imp := route(http.MethodPut, "/v1/sessions/{id}/import", "import-files", tag, "Give a session its first files")
	imp.Description = "For a session that was created with a source. Until the import is complete the session takes no message; an import that failed may be done again."
	imp.MaxBodyBytes = a.maxTar()
	imp.RequestBody = tar("A tar archive, not compressed, of files, directories and links.")
	handleOne(a, imp, a.importFiles)

	diff := route(http.MethodGet, "/v1/sessions/{id}/diff", "read-diff", tag, "Read what changed in the files between two checkpoints, or since the import")
	diff.Description = "Without from and to, the files as they are now are compared with those that were imported from a git repository; git does that in the box, which the agent controls. " +
		"Without an import from git, the newest checkpoint is compared with the first one. Read a diff before you apply it."
	diff.Responses = map[string]*huma.Response{"200": {Description: "The diff.", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: "string"}}}}}
	handleOne(a, diff, a.readDiff)
}

// maxTar returns the size limit of an archive, in bytes: the largest content, and room for headers.
func (a *API) maxTar() int64 { return a.cfg.Bounds.Copy + a.cfg.Bounds.Copy/2 + 64<<20 }

func (a *API) readTree(ctx context.Context, id holdfast.SessionID, in *treeInput) (*raw, error) {
	return a.download(tarType, func(ctx context.Context, out *download) error {
		_, err := a.cfg.Boxes.PackTree(ctx, id, in.r.PathValue("path"), out)
		return err
	}), nil
}

// download returns an answer with media type typ whose content write writes. The stop of the server cancels write.
func (a *API) download(typ string, write func(context.Context, *download) error) *raw {
	return answer(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := a.streams.Join(r.Context())
		defer cancel()
		a.send(w, r, &download{w: w, typ: typ}, func(out *download) error { return write(ctx, out) })
	})
}

// send answers a request with the archive or diff that write writes to out. An error before the
// first byte becomes a problem document; a later one breaks the connection.
func (a *API) send(w http.ResponseWriter, r *http.Request, out *download, write func(*download) error) {
	err := write(out)
	switch {
	case err == nil:
		out.begin() // sends the header of an empty answer, for which nothing was written
	case out.begun:
		panic(http.ErrAbortHandler)
	default:
		a.problems.Answer(w, r, err)
	}
}

func (a *API) writeTree(ctx context.Context, id holdfast.SessionID, in *unpackInput) (*copiedOutput, error) {
	guard.LeaveRoom(ctx)
	ctx, cancel := a.streams.Join(ctx)
	defer cancel()
	to := holdfast.CopyTo{Path: in.r.PathValue("path"), Name: in.Name, Into: in.Into, File: in.File}
	sum, err := a.cfg.Boxes.UnpackTree(ctx, id, to, body.Upload(in.w, in.r, a.maxTar()))
	out := &copiedOutput{}
	out.Body.Copied = sum
	return out, err
}

func (a *API) importFiles(ctx context.Context, id holdfast.SessionID, in *treeInput) (*output[holdfast.Imported], error) {
	guard.LeaveRoom(ctx)
	ctx, cancel := a.streams.Join(ctx)
	defer cancel()
	return bodyOf(a.cfg.Boxes.Import(ctx, id, body.Upload(in.w, in.r, a.maxTar())))
}

// diffNotes is the HTTP trailer with notes on a diff, such as files that could not be compared, percent-encoded.
const diffNotes = "Holdfast-Notes"

func (a *API) readDiff(ctx context.Context, id holdfast.SessionID, in *diffInput) (*raw, error) {
	checkpoints, stored, err := a.compared(ctx, id, in)
	if err != nil {
		return nil, err
	}
	return a.download("text/plain; charset=utf-8", func(ctx context.Context, out *download) (err error) {
		out.w.Header().Set("Trailer", diffNotes)
		var notes string
		if stored {
			notes, err = a.cfg.Checkpoints.Diff(ctx, id, checkpoints, out)
		} else {
			notes, err = a.cfg.Boxes.Diff(ctx, id, checkpoints.Format, out)
		}
		if err == nil && notes != "" {
			out.begin()
			out.w.Header().Set(diffNotes, url.PathEscape(notes))
		}
		return err
	}), nil
}
