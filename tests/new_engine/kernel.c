/* A whole kernel for the engine of `mkbench new-engine DIR c`: tests/cli/test_new_engine.py puts it between "Your kernel
 * begins" and "ends", behind tests/plugins/foreign_decoder.h, which it calls. */
static int32_t step(mkbench_engine* e, int32_t token, int32_t position, float* logits,
                    int32_t* next) {
  const mkbench_model* m = &e->m;
  struct foreign_decoder d = {
      m->hidden,     m->intermediate,
      m->layers,     m->heads,
      m->kv_heads,   m->head_dim,
      m->vocab,      e->max_context,
      m->rope_theta, m->rms_norm_eps,
      e->embedding,  e->final_norm,
      e->head,       (const struct foreign_layer*)(const void*)e->layers, /* the same members */
      e->keys,       e->values,
      NULL};
  d.scratch = (float*)malloc(sizeof(float) * foreign_scratch(&d));
  if (d.scratch == NULL) return fail(e, "no memory for a step");
  *next = foreign_step(&d, token, position, logits);
  free(d.scratch);
  return MKBENCH_OK;
}
