"""Settings that make no sense, or that a run would not read, are refused: which, and why."""

import re

import pytest
from words import refused

# algorithm and words: what is said of them
IMPOSSIBLE = """\
esac --esac.population_size 7: must be even
esac --esac.winner_fraction 1.5: at most 1
esac --esac.winner_fraction 0.001 --esac.population_size 50: no winner among 50 members
esac --esac.winner_fraction 1.0: 500 crossover children + 1 SAC copies > 500 slots
esac --esac.population_size 50 --esac.sac_copies 16: 10 crossover children + 16 SAC copies > 25 \
slots
esac --esac.winner_selection hard --esac.sac_copy_noise false --esac.population_size 50 \
--esac.sac_copies 15: esac.winner_selection = hard, esac.sac_copy_noise = false: no slot is \
perturbed
esac --esac.sac_min_steps 0: esac.sac_min_steps = 0: must be positive, no phase has fewer under \
esac.phase_timing = continuous
esac --esac.transfer_episodes 1: esac.transfer_episodes = 1: must be at least 2, for a difference \
to have an error
esac --esac.preset corrected --esac.learner_lag 6: esac.learner_lag = 6: must be at most \
esac.gradient_interval (5)
es --es.action_noise -0.1: es.action_noise = -0.1: must be at least 0
esac --esac.sigma 0: esac.sigma = 0.0: must be positive
esac --esac.sigma 1e-20: esac.sigma = 1e-20: must be at least 1e-09
sac --sac.temperature 1e-30: temperature = 1e-30: must be at least 1e-09
ppo --ppo.initial_std 1e-50: initial_std = 1e-50: must be at least 1e-09
aes_rl --aes_rl.variance_init 1e-80: variance_init = 1e-80: must be at least 1e-18
esac --fresh=true: command line: --fresh takes no value: leave =true out
esac --task Hopper-v5: 'task' is a table of settings, which has no value of its own: name one of \
them, such as task.id
esac --esac.sigma nan: esac.sigma = nan
esac --sac.lr_sac inf: sac.lr_sac = inf
esac --seed -1: seed = -1
esac --budget.minutes 1e308: budget.minutes = 1e+308: must be at most
esac --budget.generations 0: no limit is set
esac --checkpoint.every_generations 0 --checkpoint.every_minutes 0: a run that is killed would \
lose all
esac --esac.sampling onesided --esac.population_size 1: esac.population_size = 1: no ES gradient
es --es.sampling onesided --es.population_size 1 --es.fitness_shaping sign_ranks: no ES gradient \
under sampling = onesided and fitness_shaping = sign_ranks
esac nowhere.toml: nowhere.toml: No such file
sacc --help: algorithm = 'sacc': expected 'esac' | 'es' | 'sac'
cem --cem.population_size 5: cem.population_size = 5
cem --cem.variance_init 0: cem.variance_init = 0.0
cem --cem.elite_fraction 1.5: cem.elite_fraction = 1.5
cem --cem_rl.tau 0.1: cem_rl.tau
cem --policy.output clip: policy.output
cem --cem.critic serial: cem.critic
cem --cem.importance_mixing true --cem.sampling mirrored: cem.sampling
cem_rl --cem_rl.importance_mixing true --cem_rl.trained_fraction 1: cem_rl.importance_mixing = true
cem_rl --cem_rl.batch_size 2000 --cem_rl.replay_capacity 1000: cem_rl.batch_size = 2000
cem_rl --cem_rl.trained_fraction 0.04: cem_rl.trained_fraction = 0.04: none of 10 individuals
cem_rl --cem_rl.trained_fraction 1.1: cem_rl.trained_fraction = 1.1
erl --erl.population_size 2: erl.population_size = 2
erl --erl.population_size 6 --erl.elite_fraction 0.5: size = 6: .* lower elite_fraction
pderl --erl.elite_fraction 0.9 --erl.population_size 2: 3 or more
derl --erl.memory_size 15 --erl.distillation_batch 8: erl.memory_size = 15
perl --erl.memory_size 15 --erl.mutation_batch 16: erl.memory_size = 15
perl --erl.crossover distillation: algorithm = pderl
erl --erl.distillation_batch 9: erl.distillation_batch
erl --erl.super_probability 0.6 --erl.reset_probability 0.5: super_probability = 0.6: .* lower one
pderl --erl.learner td3 --erl.batch_size 16: erl.batch_size
pderl --sac.tau 0.1: sac.tau
erl --erl.learner sac --sac.start_steps 5: sac.start_steps
td3 --td3.policy_delay 0: td3.policy_delay = 0
ddpg --ddpg.tau 1.5: ddpg.tau = 1.5
ddpg --ddpg.replay_capacity 60: ddpg.batch_size = 64: must be at most ddpg.replay_capacity (60)
td3 --td3.lr_td3 0: td3.lr_td3 = 0.0
ppo --ppo.lr_ppo 0: ppo.lr_ppo = 0.0
ppo --ppo.gae_lambda 1.5: ppo.gae_lambda = 1.5
ppo --ppo.batch_size 1: ppo.batch_size = 1
ppo --ppo.steps_per_generation 63: ppo.batch_size = 64: must be from 2 to .* (63)
ppo --ppo.steps_per_generation 33 --ppo.batch_size 16: ppo.batch_size = 16
ppo --learner.precision bf16: learner.precision
ppo --policy.layer_norm true: policy.layer_norm
ppo --policy.linear true: policy.linear
esac --policy.linear true --policy.linear_gain 0: policy.linear_gain = 0.0
esac --policy.linear true --policy.linear_gain 1e-50: policy.linear_gain = 1e-50
esac --policy.linear true --policy.linear_gain 1e4: policy.linear_gain = 10000.0
esac --esac.sigma_rule one_fifth --esac.transfer off: esac.transfer = tested
esac --esac.sigma_rule one_fifth --esac.length_cap 2: esac.length_cap = 0
esac --esac.sigma_rule one_fifth --esac.action_noise 0.1: esac.action_noise = 0
esac --esac.sigma_rule one_fifth --esac.winner_fraction 0.5 --esac.population_size 4: \
esac.winner_fraction
es --es.sigma_rule one_fifth --es.length_cap 2: es.length_cap = 0
esac --esac.transfer means --esac.sac_copies 0: esac.sac_copies = 1 or more
esac --esac.transfer means --esac.winner_fraction 0.96 --esac.population_size 50: theta_es
esac --esac.transfer tested --esac.sac_phases false: esac.transfer = off
aes_rl --aes_rl.variance_rule success: aes_rl.variance_rule = success
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule adaptive: variance_rule = adaptive
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule fixed: variance_rule = fixed
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule success --aes_rl.success_factor 0: \
success_factor = 0.0
aes_rl --aes_rl.mean_rule linear --aes_rl.mean_episodes 0: mean_episodes = 0
aes_rl --aes_rl.mean_rule full_move --aes_rl.variance_rule success --aes_rl.mean_episodes 0: \
mean_episodes = 0
"""
UNREAD = """\
es --esac.sigma 0.5: --esac.sigma: algorithm = es does not read it; did you mean --es.sigma?
esac --es.sigma 0.5: --es.sigma: algorithm = esac does not read it; did you mean --esac.sigma?
td3 --sac.gamma 0.9: did you mean --td3.gamma?
es --learner.threads 2: --learner.threads: algorithm = es does not read it
esac --sac.observation_normalisation true: did you mean --esac.observation_normalisation?
esac --sac.steps_per_generation 50: --sac.steps_per_generation: algorithm = esac does not read it
ppo --policy.output clip: --policy.output: algorithm = ppo does not read it
esac --esac.noise_table_size 9: --esac.noise_table_size: read only with esac.noise = table
esac --esac.transfer off --esac.sac_phases false --esac.gate normal: --esac.gate: read only with \
esac.sac_phases = true
esac --esac.transfer off --esac.sac_phases false --sac.batch_size 64: --sac.batch_size: read only \
with esac.sac_phases = true
esac --esac.resimulated none --esac.resimulated_members 3: --esac.resimulated_members: read only \
with esac.resimulated = winners or better or earning or sample
esac --esac.preset corrected --esac.workers 3: --esac.workers: read only with esac.phase_timing = \
continuous or virtual
esac --esac.preset paper --esac.start_states pair: read only with esac.sampling = mirrored or repo
esac --esac.transfer off --esac.sac_phases false --esac.sigma_rule grow --esac.amt_clip 0.1: with \
esac.sac_phases = true or esac.amt_trigger = interval
esac --esac.optimiser sgd --esac.transfer_moments kept: --esac.transfer_moments: read only with \
esac.optimiser = adam
esac --esac.learner_lag 1: --esac.learner_lag: read only with esac.phase_timing = interval
td3 --td3.episodes_per_generation 3: read only with td3.episodes_on = ranks
ddpg --ddpg.episodes_on ranks --ddpg.interleaved true: with ddpg.episodes_on = root
erl --erl.memory_size 300: erl.memory_size: read only with erl.crossover = distillation or \
erl.mutation = proximal
esac --policy.hidden [] --policy.activation tanh: --policy.activation: read only with hidden \
layers (policy.hidden)
esac --policy.hidden [] --policy.layer_norm true: --policy.layer_norm: read only with hidden \
layers (policy.hidden)
esac --policy.hidden [] --policy.linear_gain 2: --policy.linear_gain: read only with hidden \
layers (policy.hidden)
esac --policy.hidden [] --sac.critic_layer_norm true: --sac.critic_layer_norm: read only with \
hidden layers (policy.hidden)
esac --esac.transfer_wins 1 --esac.transfer_at_once true: --esac.transfer_at_once: read only with \
esac.transfer_wins = a number above 1
esac --esac.sac_copies 0 --esac.sac_copy_noise false: --esac.sac_copy_noise: read only with \
esac.sac_copies = a number above 0
aes_rl --aes_rl.rl_gain 0 --aes_rl.rl_share 0.1: --aes_rl.rl_share: read only with \
aes_rl.rl_gain = a number above 0
erl --erl.mutated_fraction 0 --erl.reset_probability 0.1: --erl.reset_probability: read only with \
erl.mutated_fraction = a number above 0
"""


@pytest.mark.parametrize("case", (IMPOSSIBLE + UNREAD).splitlines())
def test_what_cannot_be_run_is_refused_with_the_reason(case):
    line, _, said = case.partition(": ")
    pattern = re.escape(said).replace(r"\.\*", ".*")
    assert re.search(pattern, refused("--algorithm", *line.split()))
