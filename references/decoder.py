"""The interface by which mkbench judges and times a decoder that runs in Python, on torch tensors:

    mkbench parity --engine ./mine.py        mkbench --engine ./mine.py --python venv/bin/python

The file defines a class `Decoder` (or any callable of that name that returns such an object). It needs no base class
and nothing of mkbench; this Decoder states what mkbench calls. baselines/hf_decoder.py is a complete example.

The file runs in a process of its own, with the Python of --python: any from 3.9 on that has numpy, torch and what the
file imports. All calls come from one thread, prefill() and decode() under torch.no_grad(). Several decoders of one file
may be open at a time.
An exception gives the verdict RUNTIME_ERROR with its last line, and the traceback lies in the report's folder; torch's
and Python's errors of memory give ENV_UNFIT, an ImportError gives BAD_INPUT. Output to stdout goes to stderr.
"""


class Decoder:
    context_limit = 0  # optional, read before open(): the most positions that open() takes; 0: any number
    # Optional attributes, read after open().
    name = "mine"  # up to 40 of letters, digits, '.', '_', '-': as reports show it
    precision = "bf16"  # as eager; "fp32-accumulate": only KV rows, RoPE, one operand of a product; "fp16": to fp16; "lossy": quantised
    deterministic = True  # equal input gives equal bits
    settings = ""  # library settings that bear on times and logits, as report.json shows them
    position = 0  # KV rows written; read from another thread, so that a report can say where a call hung

    def open(self, folder, device, max_context):
        """Loads the weights of `folder` (pathlib.Path), a snapshot as Hugging Face writes it: config.json,
        *.safetensors, no tokenizer. The files belong to mkbench and are not written. config.json may be of any
        model_type (docs/models.md); raise an exception where yours is another one. device: torch.device("cpu"),
        or torch.device("cuda", n), which is the current one. max_context: positions that the KV cache must hold."""

    def prefill(self, ids):
        """Begins a new sequence. ids: int64 [n], n >= 1, on the device. Writes the KV rows of ids[:-1]; ids[-1] becomes
        pending: the input of the next step."""

    def decode(self, n, forced=None, logits=None):
        """n greedy steps; returns the n ids that they emit, an integer tensor on any device or a list. A step embeds
        its input at the current position, writes one KV row and emits the id of the largest logit, the lowest id among
        equals. Step 0 takes the pending id as input, a later step the id emitted before it; the last id emitted is
        pending afterwards.
        forced: None, or int64 [n] on the device: the inputs instead, the first one in place of the pending id. The ids
            emitted are still the model's own choice. Without this parameter mkbench prefills again to force an id.
        logits: None, or float32 [n, vocab] on the device, NaN, to be filled; None where the time is reported. Without
            this parameter the ids alone are judged.
        The clock runs from this call until the ids are on the host and all work of the device is done."""

    def set_pending(self, id_):
        """Optional: an int that replaces the pending id. Without it mkbench decodes the first step with `forced`."""

    def rewind(self, position):
        """Optional: goes back to `position` KV rows, with nothing pending until the next set_pending() or forced id.
        Without it mkbench restores a saved state before each sample, or, without save(), prefills again, off the
        clock."""

    def save(self, slot):
        """Optional, with restore(): keeps a copy of the whole state in `slot`, 0 to 3, in place of what the slot held:
        the KV rows below the position, recurrent states and the pending id. Returns an int over all bits of the rows
        and states, by which mkbench compares two states."""

    def restore(self, slot):
        """Goes back to the state in `slot`, which stays there. mkbench then saves into it again to see that nothing
        differs."""

    def show(self, layer, position=None):
        """Optional, between decodes, off the clock: the hidden state after `layer` of the last step, [hidden]; with a
        position its KV row, K after RoPE, then V: [2, kv_heads, head_dim]. A tensor or array, or None: not shown. With
        it a report on a wrong decoder names the layer and the phase where the error begins."""

    def dequantised(self, name):
        """Optional, for --truth dequantised, whose truth computes with them: the values of the weight `name` that enter the
        product, float32, in the tensor's shape; None for a weight that is used as the folder has it, and lm_head.weight of
        a tied model then follows the embedding. Of a quantised model, `name` is that of the whole weight: "...q_proj.weight"
        where the folder stores "...q_proj.qweight"."""

    def storage(self, name):
        """Optional: how a weight of which dequantised() gives values is kept: {"dtype": "int4", "scale_block": [1, 128],
        "scale_dtype": "fp16", "zero_dtype": None, "bytes": n}, as mkbench_storage in engine_abi.h. The share of the ceiling
        is then of these bytes."""

    # Declared for decoders that are written now; this mkbench does not call or read what follows.
    activations = kv = ""  # what these are rounded to beside the precision: "fp8-e4m3", "int8"; "": nothing else

    def frames(self, text, logits=None):
        """Optional: frames of a speech model, as mkbench_frames in engine_abi.h. text: bfloat16 [n, hidden]; returns
        the codes, integers [n, codebooks]. logits: None, or float32 [n, codebooks, largest head], NaN, to be filled."""
